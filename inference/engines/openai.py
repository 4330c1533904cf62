"""The engine for any OpenAI-compatible server, vLLM included, over pooled keep-alive connections.

aiohttp and typed msgspec decoding, not httpx and not the openai client: see docs/adr/0003-hot-path.md.
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from services.common.errors import (
    AntiphonError,
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
)  # fmt: skip
from services.common.http import sse_batches
from services.common.messages import (
    Capabilities,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Load,
    Message,
    Sampling,
    TextDelta,
    TokenizeRequest,
    TokenLogprob,
    Tokens,
    Tool,
    ToolCallDelta,
    ToolChoice,
    Usage,
)  # fmt: skip


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Probability(msgspec.Struct):
    token: str = ""
    logprob: float = 0.0
    bytes: tuple[int, ...] | None = None
    top_logprobs: "list[_Probability] | None" = None


class _Logprobs(msgspec.Struct):
    """`content` is how chat completions write them; the other three are how completions do."""

    content: list[_Probability] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: tuple[int, ...] | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Tokenized(msgspec.Struct):
    count: int
    tokens: tuple[int, ...]


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode
_FINISH: dict[str, FinishReason] = {
    "stop": "stop", "length": "length", "tool_calls": "tool_calls", "content_filter": "content_filter",
    "function_call": "tool_calls",
}  # fmt: skip
_CUT_SHORT = {"abort", "error"}
_NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""An answer takes as long as it takes; a session's own limit is five minutes unless somebody thought of it."""


class OpenAIEngine:
    """base_url ends before `/chat/completions`, as in the official clients (`http://host:8000/v1`).

    upstream_model: the name by which the server knows the model. context_window: asked of the server where it tells
    (vLLM's `max_model_len`).
    """

    def __init__(
        self, model: str, base_url: str, session: aiohttp.ClientSession, *, upstream_model: str | None = None,
        api_key: str | None = None, context_window: int = 8192,
    ):  # fmt: skip
        self.model = model
        self._base = base_url.rstrip("/")
        # Parsing a URL costs as much as encoding the request.
        self._urls = {path: URL(self._base + path) for path in ("/chat/completions", "/completions")}
        self._session = session
        self._upstream_model = upstream_model or model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers["Content-Type"] = "application/json"
        self._window = context_window
        self._running = 0

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        path, body = self._body(request)
        translate = _Translation(request.n)
        self._running += 1
        try:
            async with await self._post(self._urls[path], body, timeout=_NO_LIMIT) as response:
                if response.status != 200:
                    raise self._refusal(response.status, await response.read())
                async for batch in sse_batches(response.content):
                    events: list[Event] = []
                    for _, data in batch:
                        if data != b"[DONE]":
                            translate(_decode(data), events)
                    if events:
                        yield events
            if translate.open:
                raise EngineFailed(f"The server of {self.model} stopped in the middle of its answer.")
            yield [translate.usage()]
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise EngineFailed(f"The server of {self.model} failed: {type(e).__name__}.") from e
        finally:
            self._running -= 1

    def _body(self, request: GenerationRequest) -> tuple[str, bytes]:
        body = _parameters(request.sampling) | {"model": self._upstream_model, "n": request.n}
        if request.output_schema is not None:
            body["response_format"] = _response_format(request.output_schema)
        if request.prompt is not None:
            body["prompt"] = request.prompt
            if request.sampling.logprobs is not None:
                body["logprobs"] = request.sampling.logprobs
            return "/completions", msgspec.json.encode(body)
        body["messages"] = [_message(m) for m in request.messages]
        if request.sampling.logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": request.sampling.logprobs}
        if request.tools and request.tool_choice.mode != "none":
            body["tools"] = [{"type": "function", "function": _function(t)} for t in request.tools]
            body["tool_choice"] = _tool_choice(request.tool_choice)
            body["parallel_tool_calls"] = request.parallel_tool_calls
        if request.continue_last:
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        return "/chat/completions", msgspec.json.encode(body)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        body: dict[str, Any] = {"model": self._upstream_model}
        if request.text is not None:
            body |= {"prompt": request.text, "add_special_tokens": False}
        else:
            body["messages"] = [_message(m) for m in request.messages]
            if request.tools:
                body["tools"] = [{"type": "function", "function": _function(t)} for t in request.tools]
        url = self._base.removesuffix("/v1") + "/tokenize"
        try:
            async with await self._post(url, msgspec.json.encode(body)) as response:
                found = msgspec.json.decode(await response.read(), type=_Tokenized)
                return Tokens(found.count, found.tokens)
        except (aiohttp.ClientError, TimeoutError) as e:
            raise EngineFailed(f"The server of {self.model} failed: {type(e).__name__}.") from e
        except msgspec.DecodeError:  # only vLLM and its kin tokenise as asked here
            texts = [request.text or "", *(msgspec.json.encode(x).decode() for x in request.messages + request.tools)]
            # Three bytes a token errs on the safe side for most languages.
            return Tokens(sum(len(t.encode()) // 3 + 8 for t in texts))

    async def capabilities(self) -> Capabilities:
        window = self._window
        for card in await self._models():
            if card.get("id") == self._upstream_model:
                window = int(card.get("max_model_len") or window)
        return Capabilities(
            model=self.model,
            context_window=window,
            tools=True,
            structured_output=True,
            logprobs=True,
            continue_last=True,
        )

    async def load(self) -> Load:
        try:
            await self._models()
        except AntiphonError as e:
            return Load(healthy=False, running=self._running, detail=e.message)
        return Load(healthy=True, running=self._running)

    async def _models(self) -> list[dict[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with self._session.get(f"{self._base}/models", headers=self._headers, timeout=timeout) as response:
                if response.status != 200:
                    raise EngineFailed(f"The server of {self.model} answered {response.status}.")
                return list((await response.json())["data"])
        except (aiohttp.ClientError, TimeoutError, KeyError, TypeError, ValueError) as e:
            raise EngineFailed(f"The server of {self.model} cannot be reached: {type(e).__name__}.") from e

    async def _post(self, url: str | URL, body: bytes, **options: Any) -> aiohttp.ClientResponse:
        try:
            return await self._session.post(url, data=body, headers=self._headers, **options)
        except aiohttp.ClientConnectorError:
            raise
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # Most likely a pooled connection that the server was just closing: once more, then it is a failure.
            return await self._session.post(url, data=body, headers=self._headers, **options)

    def _refusal(self, status: int, body: bytes) -> AntiphonError:
        try:
            error = msgspec.json.decode(body)
            error = error.get("error", error)
            message, code, param = str(error["message"]), error.get("code"), error.get("param")
            too_long = code == "context_length_exceeded" or error.get("type") == "exceed_context_size_error"
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            message, too_long, param = f"The server of {self.model} answered {status}.", False, None
        if status == 400 and (too_long or "context length" in message):
            return ContextLengthExceeded(message, param="messages")
        if status in (400, 422):
            return InvalidRequest(message, param=param)
        if status == 404:
            return ModelNotFound.named(self.model)
        if status in (429, 503):
            return Overloaded(message, retry_after=1)
        # 401 and the like are the operator's to mend, and must not look like the caller's fault.
        return EngineFailed(f"The server of {self.model} answered {status}.")


class _Translation:
    """Chunks to events. Remembers which choices are open, and counts tokens where the server does not."""

    def __init__(self, choices: int) -> None:
        self.open = choices
        self._usage: _Usage | None = None
        self._tokens = 0

    def __call__(self, chunk: _Chunk, events: list[Event]) -> None:
        if chunk.error:
            message = chunk.error.get("message") if isinstance(chunk.error, dict) else chunk.error
            raise EngineFailed(str(message))
        if chunk.usage:
            self._usage = chunk.usage
        for choice in chunk.choices:
            delta = choice.delta
            text = (delta.content if delta else choice.text) or ""
            logprobs = _logprobs(choice.logprobs) if choice.logprobs else ()
            if text or logprobs:
                ids = choice.token_ids or ()
                tokens = len(ids) or len(logprobs) or 1
                self._tokens += tokens
                events.append(TextDelta(choice.index, text, tokens, ids, logprobs))
            if delta and delta.tool_calls:
                self._tokens += 1
                events += [_tool_delta(choice.index, call) for call in delta.tool_calls]
            if choice.finish_reason in _CUT_SHORT:
                raise EngineFailed(f"The server gave up on its answer: {choice.finish_reason}.")
            if choice.finish_reason:
                self.open -= 1
                events.append(Finished(choice.index, _FINISH.get(choice.finish_reason, "stop")))

    def usage(self) -> Usage:
        u = self._usage or _Usage()
        cached = u.prompt_tokens_details.cached_tokens if u.prompt_tokens_details else 0
        return Usage(u.prompt_tokens, self._tokens if u.completion_tokens is None else u.completion_tokens, cached or 0)


def _tool_delta(index: int, call: _ToolCall) -> ToolCallDelta:
    function = call.function or _Function()
    return ToolCallDelta(index, call.index, function.arguments or "", call.id, function.name, 1)


def _logprobs(found: _Logprobs) -> tuple[TokenLogprob, ...]:
    if found.content is not None or found.tokens is None:
        return tuple(_logprob(p) for p in found.content or ())
    values = found.token_logprobs or [None] * len(found.tokens)
    tops = found.top_logprobs or [None] * len(found.tokens)
    return tuple(
        TokenLogprob(token, value or 0.0, tuple(token.encode()), tuple(_by_name(top or {})))
        for token, value, top in zip(found.tokens, values, tops, strict=False)
    )


def _by_name(top: dict[str, float]) -> Iterator[TokenLogprob]:
    return (TokenLogprob(token, value, tuple(token.encode())) for token, value in top.items())


def _logprob(p: _Probability) -> TokenLogprob:
    return TokenLogprob(p.token, p.logprob, p.bytes or (), tuple(_logprob(other) for other in p.top_logprobs or ()))


def _parameters(s: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
    optional = {
        "max_tokens": s.max_tokens, "temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k, "min_p": s.min_p,
        "seed": s.seed,
        "frequency_penalty": s.frequency_penalty or None, "presence_penalty": s.presence_penalty or None,
        "repetition_penalty": s.repetition_penalty if s.repetition_penalty != 1 else None, "stop": s.stop or None,
        "logit_bias": {str(k): v for k, v in s.logit_bias.items()} or None,
    }  # fmt: skip
    return body | {name: value for name, value in optional.items() if value is not None}


def _message(m: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": m.role, "content": m.content}
    if m.name:
        out["name"] = m.name
    if m.tool_calls:
        out["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments}}
            for c in m.tool_calls
        ]
    if m.tool_call_id:
        out["tool_call_id"] = m.tool_call_id
    return out


def _function(t: Tool) -> dict[str, Any]:
    return {"name": t.name, "description": t.description, "parameters": t.parameters} | (
        {"strict": True} if t.strict else {}
    )


def _tool_choice(choice: ToolChoice) -> Any:
    return {"type": "function", "function": {"name": choice.name}} if choice.mode == "named" else choice.mode


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": schema, "strict": True}}
