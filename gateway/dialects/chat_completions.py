"""Chat Completions: turn events ⇄ wire, streamed and whole."""

import time
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as json_string
from typing import Any

from gateway.dialects.wire import dumps, logprob_json, usage_json
from gateway.sse import ascii_json
from services.common.messages import Account, Event, Finished, TextDelta, ToolCallDelta, Usage


class ChatStream:
    """Encodes one answer as chunks. Frames are built from prepared pieces: a dict for each token costs too much."""

    def __init__(self, request_id: str, model: str, include_usage: bool):
        head = dumps(
            {"id": f"chatcmpl-{request_id[4:]}", "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        )  # fmt: skip
        self._head = ascii_json(b"data: " + head[:-1] + b',"choices":[')
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._include_usage = include_usage
        self._begun: set[int] = set()
        self._texts: dict[int, bytes] = {}

    def encode(self, events: Sequence[Event]) -> bytes:
        out = []
        for event in events:
            if isinstance(event, TextDelta):
                if event.index not in self._begun:
                    out.append(self._begin(event.index))
                if event.text or event.logprobs:
                    out.append(self._text(event))
            elif isinstance(event, Usage):
                if self._include_usage:
                    out.append(self._head + b'],"usage":' + dumps(usage_json(event)) + b"}\n\n")
            elif not isinstance(event, Account):
                if event.index not in self._begun:
                    out.append(self._begin(event.index))
                out.append(self._other(event))
        return b"".join(out)

    def _begin(self, index: int) -> bytes:
        self._begun.add(index)
        return self._choice(index, {"role": "assistant", "content": "", "refusal": None})

    def _text(self, event: TextDelta) -> bytes:
        if event.logprobs:
            logprobs = {"content": [logprob_json(p) for p in event.logprobs], "refusal": None}
            return self._choice(event.index, {"content": event.text}, logprobs=logprobs)
        text = json_string(event.text).encode()
        start = self._texts.get(event.index)
        if start is None:
            start = self._texts[event.index] = self._head + b'{"index":%d,"delta":{"content":' % event.index
        return start + text + b'},"logprobs":null,"finish_reason":null}' + self._tail

    def _other(self, event: ToolCallDelta | Finished) -> bytes:
        if isinstance(event, Finished):
            return self._choice(event.index, {}, finish=event.reason)
        call: dict[str, Any] = {"index": event.call}
        function: dict[str, Any] = {"arguments": event.arguments}
        if event.id is not None:
            call |= {"id": event.id, "type": "function"}
        if event.name is not None:
            function = {"name": event.name} | function
        return self._choice(event.index, {"tool_calls": [call | {"function": function}]})

    def _choice(self, index: int, delta: dict[str, Any], *, logprobs: Any = None, finish: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return self._head + ascii_json(dumps(choice)) + self._tail


class ChatAnswer:
    """Collects one answer into a whole body."""

    def __init__(self, request_id: str, model: str, n: int):
        self._id, self._model = request_id, model
        self._choices = [_Choice() for _ in range(n)]
        self._usage = Usage()

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Usage):
                self._usage = event
            elif not isinstance(event, Account):
                self._choices[event.index].take(event)

    def body(self) -> bytes:
        return dumps({
            "id": f"chatcmpl-{self._id[4:]}", "object": "chat.completion", "created": int(time.time()), "model": self._model,
            "choices": [choice.json(i) for i, choice in enumerate(self._choices)], "usage": usage_json(self._usage),
        })  # fmt: skip


class _Choice:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logprobs: list[dict[str, Any]] = []
        self.calls: dict[int, dict[str, Any]] = {}
        self.finish = "stop"

    def take(self, event: TextDelta | ToolCallDelta | Finished) -> None:
        if isinstance(event, TextDelta):
            self.texts.append(event.text)
            self.logprobs += [logprob_json(p) for p in event.logprobs]
        elif isinstance(event, Finished):
            self.finish = event.reason
        else:
            empty = {"id": event.id, "type": "function", "function": {"name": event.name, "arguments": ""}}
            self.calls.setdefault(event.call, empty)["function"]["arguments"] += event.arguments

    def json(self, index: int) -> dict[str, Any]:
        text = "".join(self.texts)
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        if self.calls:
            message |= {"content": text or None, "tool_calls": list(self.calls.values())}
        logprobs = {"content": self.logprobs, "refusal": None} if self.logprobs else None
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": self.finish}
