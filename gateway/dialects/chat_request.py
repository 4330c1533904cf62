"""The body of POST /v1/chat/completions, and what it asks of the turn engine."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.dialects.wire import Metadata, SamplingFields, Wire
from services.common.errors import InvalidRequest
from services.common.messages import GenerationRequest, Json, Message, Tool, ToolCall, ToolChoice

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class TextPart(Wire):
    type: Literal["text"]
    text: str


Content = str | Annotated[list[TextPart], Field(fail_fast=True)]


class SystemMessage(Wire):
    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(Wire):
    role: Literal["user"]
    content: Content
    name: str | None = None


class CalledFunction(Wire):
    name: str
    arguments: str


class MadeCall(Wire):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Wire):
    role: Literal["assistant"]
    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: Annotated[list[MadeCall], Field(fail_fast=True)] | None = None
    audio: None = None
    function_call: None = None
    annotations: list[Any] | None = None


class ToolMessage(Wire):
    role: Literal["tool"]
    content: Content
    tool_call_id: str


AnyMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class FunctionDefinition(Wire):
    name: Name
    description: str | None = None
    parameters: Json | None = None
    strict: bool | None = None


class FunctionTool(Wire):
    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(Wire):
    name: str


class NamedChoice(Wire):
    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Wire):
    name: Name
    description: str | None = None
    schema_: Json = Field(alias="schema", default_factory=dict)
    strict: bool | None = None


class TextFormat(Wire):
    type: Literal["text"]


class JsonObjectFormat(Wire):
    type: Literal["json_object"]


class JsonSchemaFormat(Wire):
    type: Literal["json_schema"]
    json_schema: JsonSchema


Format = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]


class ChatRequest(SamplingFields):
    messages: list[AnyMessage] = Field(fail_fast=True, min_length=1, max_length=10_000)
    max_completion_tokens: int | None = Field(None, ge=1, le=10_000_000)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    response_format: Format | None = None
    tools: Annotated[list[FunctionTool], Field(fail_fast=True, max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    metadata: Metadata | None = None
    # Accepted, and without effect here: hints for caches, billing and safety of another server.
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: Annotated[list[Literal["text"]], Field(fail_fast=True, max_length=8)] | None = None

    def generation(self, request_id: str, tenant: str, most_choices: int) -> GenerationRequest:
        """Errors: `InvalidRequest` for fields that contradict each other."""
        tools = tuple(_tool(i, t) for i, t in enumerate(self.tools or ()))
        return GenerationRequest(
            model=self.model, messages=tuple(_message(m) for m in self.messages), n=self.choices(most_choices),
            sampling=self.sampling(self.max_completion_tokens or self.max_tokens, self._logprobs()),
            tools=tools, tool_choice=self._tool_choice(tools), parallel_tool_calls=self.parallel_tool_calls is not False,
            output_schema=self._schema(), request_id=request_id, tenant=tenant,
        )  # fmt: skip

    def _logprobs(self) -> int | None:
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None

    def _tool_choice(self, tools: tuple[Tool, ...]) -> ToolChoice:
        choice = self.tool_choice
        if choice is None:
            return ToolChoice()
        if not tools and choice != "none":
            raise InvalidRequest("tool_choice is only allowed when tools are given.", param="tool_choice")
        if isinstance(choice, str):
            return ToolChoice(choice)
        if choice.function.name not in {t.name for t in tools}:
            raise InvalidRequest(f"Tool `{choice.function.name}` is not among the tools.", param="tool_choice")
        return ToolChoice("named", choice.function.name)

    def _schema(self) -> Json | None:
        match self.response_format:
            case JsonObjectFormat():
                return {}
            case JsonSchemaFormat(json_schema=wanted):
                return wanted.schema_
            case _:
                return None


def _tool(number: int, tool: FunctionTool) -> Tool:
    f = tool.function
    parameters = f.parameters or {"type": "object", "properties": {}}
    if parameters.get("type", "object") != "object":
        where = f"tools[{number}].function.parameters"
        raise InvalidRequest(f"{where} must be the schema of an object.", param=where)
    return Tool(f.name, f.description or "", parameters, bool(f.strict))


def _message(m: SystemMessage | UserMessage | AssistantMessage | ToolMessage) -> Message:
    if isinstance(m, ToolMessage):
        return Message(role="tool", content=_text(m.content), tool_call_id=m.tool_call_id)
    if isinstance(m, AssistantMessage):
        calls = tuple(ToolCall(c.id, c.function.name, _arguments(c)) for c in m.tool_calls or ())
        return Message(role="assistant", content=_text(m.content or m.refusal or ""), name=m.name, tool_calls=calls)
    return Message(role=m.role, content=_text(m.content), name=m.name)


def _arguments(call: MadeCall) -> str:
    """Chat templates parse the arguments, and break on what is not JSON."""
    try:
        json.loads(call.function.arguments or "{}")
    except (ValueError, RecursionError):
        raise InvalidRequest(f"The arguments of tool call `{call.id}` are not JSON.", param="messages") from None
    return call.function.arguments or "{}"


def _text(content: Content) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content)
