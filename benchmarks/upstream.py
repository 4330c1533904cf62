"""A scripted OpenAI-compatible server that costs next to nothing: bytes on uvloop protocols.

`python -m benchmarks.upstream PORT`. The model's name says how it answers: `burst-N` sends N tokens without pauses, a
few in each write; `paced-N` sends one each 20 ms, every stream in a phase of its own.
"""

import asyncio
import itertools
import json
import re
import sys
from typing import cast

import uvloop

INTERVAL = 0.02
PHASES = 20
WRITE = 16
"""Tokens in one write of a burst."""
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
_phase = itertools.count()


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def frame(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    chunk = {
        "id": "chatcmpl-bench",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "bench",
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


FIRST = frame({"role": "assistant", "content": ""})
TOKENS = [frame({"content": " choir"}), frame({"content": " sings"})]
"""Two, because LiteLLM takes a hundred equal chunks for a model that hangs."""


def last(tokens: int) -> bytes:
    usage = {"prompt_tokens": 20, "completion_tokens": tokens, "total_tokens": 20 + tokens}
    tail = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench", "choices": []}
    return frame({}, "stop") + b"data: " + json.dumps(tail | {"usage": usage}).encode() + b"\n\ndata: [DONE]\n\n"


class Upstream(asyncio.Protocol):
    def __init__(self) -> None:
        self._buffer = b""
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = re.search(rb"content-length: *(\d+)", head, re.I)
        if len(body) < (int(length[1]) if length else 0):
            return
        self._buffer = b""
        if head.startswith(b"POST /tokenize"):
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return
        if head.startswith(b"GET"):
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n" + b'{"data":[]}'
            )
            return
        kind = re.search(rb'"model": *"(?:openai/)?(burst|paced)-(\d+)"', body)
        assert kind, body[:200]
        self._answer(kind[1] == b"paced", int(kind[2]))

    def _answer(self, paced: bool, tokens: int) -> None:
        if paced:
            self._transport.write(HEAD + chunked(FIRST))
            loop = asyncio.get_running_loop()
            begin = loop.time() + (next(_phase) % PHASES) / PHASES * INTERVAL
            self._timer = loop.call_at(begin, self._pace, begin, tokens, tokens)
            return
        out = [HEAD, chunked(FIRST)]
        for at in range(0, tokens, WRITE):
            out += [chunked(TOKENS[i % 2]) for i in range(min(WRITE, tokens - at))]
            self._transport.write(b"".join(out))
            out = []
        self._end(tokens)

    def _pace(self, due: float, left: int, tokens: int) -> None:
        if not left:
            self._end(tokens)
            return
        self._transport.write(chunked(TOKENS[left % 2]))
        due += INTERVAL
        self._timer = asyncio.get_running_loop().call_at(due, self._pace, due, left - 1, tokens)

    def _end(self, tokens: int) -> None:
        self._transport.write(chunked(last(tokens)) + b"0\r\n\r\n")


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
