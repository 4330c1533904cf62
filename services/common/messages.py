"""What travels through ports: frozen, serialisable messages.

They are msgspec structs, so that the same value crosses a function call in one process and a JSON body
between two, and so that an event costs well under a microsecond to make, encode or decode.
Token counts are in tokens of the served model, times are seconds since the epoch (UTC) unless said otherwise.
"""

from typing import Any, Literal

from msgspec import Struct, field

Json = dict[str, Any]
FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]
Role = Literal["system", "developer", "user", "assistant", "tool"]


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a prompt, as Chat Completions writes it. Text parts are already joined."""

    role: Role
    content: str = ""
    name: str | None = None
    tool_calls: tuple["ToolCall", ...] = ()
    tool_call_id: str | None = None


class ToolCall(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str
    arguments: str
    """A JSON document, as the model wrote it."""


class Tool(Struct, frozen=True, omit_defaults=True):
    name: str
    description: str = ""
    parameters: Json = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False


class ToolChoice(Struct, frozen=True, omit_defaults=True):
    mode: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the next token is drawn. None leaves the engine's own default in place."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    logit_bias: dict[int, float] = {}
    logprobs: int | None = None
    """None: no log probabilities. N ≥ 0: of each chosen token, and of the N likeliest beside it."""


class GenerationRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything an engine needs for one generation. Exactly one of `messages` and `prompt` is given."""

    model: str
    messages: tuple[Message, ...] = ()
    prompt: str | tuple[int, ...] | None = None
    continue_last: bool = False
    """The last message is an assistant's, unfinished: go on with it rather than begin a new one."""
    n: int = 1
    sampling: Sampling = Sampling()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True
    output_schema: Json | None = None
    """A JSON Schema that the text must satisfy; {} asks for any JSON object."""
    request_id: str = ""
    tenant: str = ""


class TokenLogprob(Struct, frozen=True, omit_defaults=True):
    token: str
    logprob: float
    bytes: tuple[int, ...] = ()
    top: tuple["TokenLogprob", ...] = ()


class TextDelta(Struct, frozen=True, tag="text", omit_defaults=True, gc=False):
    """Some text of choice `index`, and the tokens it was made of."""

    index: int
    text: str
    tokens: int = 1
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class ToolCallDelta(Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A piece of tool call number `call` of choice `index`: the first carries id and name."""

    index: int
    call: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None
    tokens: int = 0


class Finished(Struct, frozen=True, tag="finished", omit_defaults=True):
    index: int
    reason: FinishReason


class Usage(Struct, frozen=True, tag="usage", omit_defaults=True):
    """Tokens of the whole generation, over all its choices. The last event of a stream that was not cut short."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


WHOLE_PROMPT = -1


class Prefilled(Struct, frozen=True, tag="prefilled", omit_defaults=True):
    """How many of the prompt's tokens the engine has processed, so that a cancelled prefill costs what it used.

    WHOLE_PROMPT where the engine cannot tell more than that it has begun. For metering: the meter takes it out.
    """

    tokens: int


class RateState(Struct, frozen=True):
    """A token bucket as the x-ratelimit headers show it."""

    limit: int
    remaining: int
    reset: float
    """Seconds until it is full again."""


class Admitted(Struct, frozen=True, tag="admitted", omit_defaults=True):
    """The limits let a turn in: its first event. Of each kind, the bucket that has the least left; None: no limit."""

    requests: RateState | None = None
    tokens: RateState | None = None


Account = Admitted | Prefilled
"""Events about what a turn may and does cost, which say nothing."""
Event = TextDelta | ToolCallDelta | Finished | Usage | Account


class Spent(Struct, frozen=True, omit_defaults=True):
    """What a generation has used by the engine's own count, however it ended."""

    prompt_tokens: int
    """WHOLE_PROMPT where the engine cannot tell."""
    completion_tokens: int = 0
    cached_tokens: int = 0


class Capabilities(Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    context_window: int
    """Prompt and completion together, in tokens."""
    tools: bool = False
    structured_output: bool = False
    logprobs: bool = False
    continue_last: bool = False


class Load(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an engine is doing now, by its own count."""

    healthy: bool
    running: int = 0
    waiting: int = 0
    detail: str = ""


class TokenizeRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Either a text, or messages that are first rendered with the model's chat template."""

    model: str
    whole: bool = False
    """It is a whole prompt: tokens that the engine puts around one count as well."""
    text: str | None = None
    messages: tuple[Message, ...] = ()
    tools: tuple[Tool, ...] = ()


class Tokens(Struct, frozen=True, omit_defaults=True):
    count: int
    ids: tuple[int, ...] = ()
    """Empty where the engine can only estimate the count."""


class EmbeddingRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    model: str
    inputs: tuple[str | tuple[int, ...], ...]
    dimensions: int | None = None


class Embeddings(Struct, frozen=True):
    vectors: tuple[tuple[float, ...], ...]
    """Unit length, in the order of the inputs."""
    prompt_tokens: int


class RouteRequest(Struct, frozen=True):
    model: str
    tenant: str = ""


class Route(Struct, frozen=True):
    """Which model runs, and which worker runs it."""

    model: str
    worker: str
    model_class: str = "chat"
    """What its limits are counted with (`Tier.limits`)."""
    context_window: int = 0
    """As on its card; 0: not known."""


class ModelCard(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    created: int
    owned_by: str = "antiphon"
    kind: Literal["chat", "embedding"] = "chat"
    context_window: int = 0


class Conversation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    tenant: str
    title: str = ""
    model: str = ""
    system_prompt: str = ""
    parameters: Json = {}
    leaf_id: str | None = None
    """The last message of the branch that is shown."""
    created: float = 0.0
    updated: float = 0.0


class NewConversation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    title: str = ""
    model: str = ""
    system_prompt: str = ""
    parameters: Json = {}


class ConversationRef(Struct, frozen=True):
    """Names one conversation for one tenant: another tenant's is as missing as one that never was."""

    tenant: str
    id: str


class ConversationPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """None leaves a field as it is."""

    tenant: str
    id: str
    title: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    parameters: Json | None = None
    leaf_id: str | None = None


class ConversationQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    text: str = ""
    """Found in the title or in any message, whatever its case; empty finds all."""
    before: float | None = None
    """Only conversations updated before this time: the cursor for the next page."""
    limit: int = 50


class ConversationPage(Struct, frozen=True):
    items: tuple[Conversation, ...]
    more: bool


MessageStatus = Literal["complete", "running", "stopped", "interrupted", "error"]


class StoredMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node of a conversation's tree. Siblings (the same parent) are the branches ‹2/3›."""

    id: str
    conversation_id: str
    parent_id: str | None
    role: Literal["user", "assistant"]
    content: str = ""
    status: MessageStatus = "complete"
    model: str = ""
    finish_reason: str | None = None
    error: str | None = None
    usage: Json = {}
    """prompt_tokens, completion_tokens, cached_tokens, ttft_s, tokens_per_s; whatever is known."""
    created: float = 0.0


class NewMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    conversation_id: str
    parent_id: str | None
    role: Literal["user", "assistant"]
    id: str | None = None
    """Chosen by the caller, so that appending it twice can be told from appending two; None: the store chooses."""
    content: str = ""
    status: MessageStatus = "complete"
    model: str = ""


class MessageRef(Struct, frozen=True):
    tenant: str
    id: str


class MessagePatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    tenant: str
    id: str
    content: str | None = None
    status: MessageStatus | None = None
    finish_reason: str | None = None
    error: str | None = None
    usage: Json | None = None
