"""Tool calls for engines that only write text: a wrapper.

`required` and a named tool become a JSON schema that the engine must satisfy. For `auto` the model writes freely,
and what turns out to be a call, in any of the shapes that small models use, is taken out of its text.
"""

import json
import re
import secrets
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from itertools import takewhile
from typing import Any

import msgspec
from msgspec.structs import replace

from inference.schemas import require_compilable
from services.common.errors import InvalidRequest
from services.common.messages import (
    Capabilities,
    Event,
    Finished,
    GenerationRequest,
    Json,
    Load,
    Spent,
    TextDelta,
    TokenizeRequest,
    Tokens,
    Tool,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from services.common.ports import Engine

_WRAPPINGS = (
    "```json", "```tool_call", "```", "<tool_call>", "</tool_call>", "<tools>", "</tools>", "<tool>", "</tool>",
)  # fmt: skip
_BETWEEN = re.compile(rf"(?:[\s,]+|(?:{'|'.join(_WRAPPINGS)})(?!\w))*")
_FIRST_KEYS = ("name", "arguments", "parameters", "type", "id")


class ToolCalling:
    def __init__(self, inner: Engine):
        self._inner = inner

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        mode = request.tool_choice.mode
        if not request.tools or mode == "none":
            stream = self._inner.generate(replace(request, tools=()))
        elif mode == "auto":
            stream = self._auto(request)
        else:
            stream = self._forced(request)
        async with aclosing(stream) as events:
            async for batch in events:
                yield batch

    async def _forced(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        tools = [t for t in request.tools if request.tool_choice.name in (None, t.name)]
        if not tools:
            raise InvalidRequest(f"Tool `{request.tool_choice.name}` is not among the tools.", param="tool_choice")
        schema = call_schema(tools)
        require_compilable(schema, "tools")
        answer = _Held()
        forced = replace(request, tools=tuple(tools), output_schema=schema)
        async with aclosing(self._inner.generate(forced)) as events:
            async for batch in events:
                answer.take(batch)
        yield answer.as_events(find_calls(answer.text, tools))

    async def _auto(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        answer = _Held()
        async with aclosing(self._inner.generate(request)) as events:
            async for batch in events:
                if answer.released:
                    yield batch
                    continue
                answer.take(batch)
                if not may_be_call(answer.text, request.tools):
                    answer.released = True
                    yield answer.events
        if answer.released:
            return
        calls = find_calls(answer.text, request.tools)
        if calls and _repeats_last(calls, request):
            # Small models call again what they have just been told the result of: let them answer in words.
            first = answer.usage()
            async with aclosing(self._inner.generate(replace(request, tools=()))) as events:
                async for batch in events:
                    yield [_add(first, e) if isinstance(e, Usage) else e for e in batch]
            return
        yield answer.as_events(calls if request.parallel_tool_calls else calls[:1])

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return await self._inner.tokenize(request)

    async def capabilities(self) -> Capabilities:
        return replace(await self._inner.capabilities(), tools=True)

    async def load(self) -> Load:
        return await self._inner.load()

    async def settle(self, request_id: str) -> Spent | None:
        return await self._inner.settle(request_id)


class _Held:
    """Events kept back until it is known whether they are a tool call."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.text = ""
        self.released = False

    def take(self, batch: Sequence[Event]) -> None:
        self.events += batch
        self.text += "".join(e.text for e in batch if isinstance(e, TextDelta))

    def usage(self) -> Usage:
        return next((e for e in self.events if isinstance(e, Usage)), Usage())

    def as_events(self, calls: Sequence[ToolCall]) -> list[Event]:
        if not calls:
            return self.events
        tokens = sum(e.tokens for e in self.events if isinstance(e, TextDelta))
        out: list[Event] = [
            ToolCallDelta(0, i, call.arguments, call.id, call.name, tokens if i == 0 else 0)
            for i, call in enumerate(calls)
        ]
        for event in self.events:
            if isinstance(event, Finished):
                # A call that was cut off is not a call: "length" stays.
                out.append(Finished(event.index, "tool_calls" if event.reason == "stop" else event.reason))
            elif isinstance(event, Usage):
                out.append(event)
        return out


def _add(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.prompt_tokens + other.prompt_tokens, one.completion_tokens + other.completion_tokens,
        one.cached_tokens + other.cached_tokens,
    )  # fmt: skip


def call_schema(tools: Sequence[Tool]) -> Json:
    """Any one of the calls: `{"name": …, "arguments": {…}}`."""
    return {"anyOf": [_one_call(t) for t in tools]} if len(tools) > 1 else _one_call(tools[0])


def _one_call(tool: Tool) -> Json:
    parameters = dict(tool.parameters or {})
    parameters.setdefault("type", "object")
    if parameters.get("properties"):
        parameters.setdefault("additionalProperties", False)
    return {
        "type": "object",
        "properties": {"name": {"const": tool.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def may_be_call(text: str, tools: Sequence[Tool]) -> bool:
    """Whether a text that begins like this could still turn out to be a call of one of the tools."""
    rest = text[_end_of_wrapping(text) :].removeprefix("[").lstrip()
    if not rest or any(w.startswith(rest) for w in _WRAPPINGS):
        return True
    if not rest.startswith("{"):
        return False
    rest = rest[1:].lstrip()
    key = re.match(r'"(\w*)("?)', rest)
    if key is None:
        return not rest
    rest = rest[key.end() :]
    if not key[2]:
        return not rest and any(k.startswith(key[1]) for k in _FIRST_KEYS)
    if key[1] != "name":
        return key[1] in _FIRST_KEYS
    name = re.match(r'\s*:\s*"([^"]*)("?)', rest)
    if name is None:
        return re.fullmatch(r"\s*:?\s*", rest) is not None
    return any(t.name == name[1] if name[2] else t.name.startswith(name[1]) for t in tools)


def find_calls(text: str, tools: Sequence[Tool]) -> list[ToolCall]:
    """The calls of known tools that the text begins with. None: it is an answer in words."""
    names = [t.name for t in tools]
    return [_call(v) for v in takewhile(lambda v: isinstance(v, dict) and v.get("name") in names, _json_values(text))]


def _call(value: dict[str, Any]) -> ToolCall:
    arguments = value.get("arguments", value.get("parameters"))
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(f"call_{secrets.token_hex(12)}", value["name"], text)


def _json_values(text: str) -> Iterator[Any]:
    """The JSON values that a text begins with, with only wrapping between them; a list counts as its items."""
    decoder, at = json.JSONDecoder(), _end_of_wrapping(text)
    while at < len(text):
        try:
            start, at = at, decoder.raw_decode(text, at)[1]
            value = msgspec.json.decode(text[start:at])  # json lets through NaN, 1e999 and half a surrogate pair
        except (ValueError, RecursionError, msgspec.DecodeError):
            return
        yield from value if isinstance(value, list) else [value]
        at = _end_of_wrapping(text, at)


def _end_of_wrapping(text: str, at: int = 0) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _repeats_last(calls: Sequence[ToolCall], request: GenerationRequest) -> bool:
    if not request.messages or request.messages[-1].role != "tool":
        return False
    made = {(c.name, _canonical(c.arguments)) for m in request.messages for c in m.tool_calls}
    return (calls[0].name, _canonical(calls[0].arguments)) in made


def _canonical(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments
