"""An OpenAI-compatible server's stream of chunks, as turn events."""

from collections.abc import Iterator
from typing import Any

import msgspec

from services.common.errors import EngineFailed
from services.common.messages import Event, Finished, FinishReason, TextDelta, TokenLogprob, ToolCallDelta, Usage


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


class Translation:
    """Chunks to events. Remembers which choices are open, and counts tokens where the server does not."""

    def __init__(self, choices: int) -> None:
        self.open = choices
        self._usage: _Usage | None = None
        self._tokens = 0

    def feed(self, data: bytes, events: list[Event]) -> None:
        """Append what one `data:` line says to `events`. Errors: `EngineFailed`, msgspec's `DecodeError`."""
        if data == b"[DONE]":
            return
        chunk = _decode(data)
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
