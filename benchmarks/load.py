"""A client that costs little: many streams on uvloop protocols, each checked for a whole answer.

`python -m benchmarks.load JSON` prints one JSON line. A truncated or failed stream counts as failed.
"""

import asyncio
import json
import statistics
import sys
import time
from dataclasses import dataclass, field
from typing import cast

import uvloop


@dataclass
class Plan:
    port: int
    model: str
    requests: int
    """In all."""
    connections: int
    """At once, each kept alive."""
    key: str = "sk-bench"
    path: str = "/v1/chat/completions"
    stream: bool = True
    prompt: str = "Sing a verse about the sea, and let the other choir answer it."
    max_tokens: int | None = None
    ramp_s: float = 0.0
    """Connections begin evenly over this time."""


@dataclass
class Result:
    ok: int = 0
    failed: int = 0
    bytes: int = 0
    chunks: int = 0
    seconds: float = 0.0
    ttft: list[float] = field(default_factory=list)
    first_error: str = ""


class Client(asyncio.Protocol):
    """One connection: sends a request, counts the answer, sends the next."""

    def __init__(self, plan: Plan, result: Result, left: list[int], done: asyncio.Future[None]):
        body = {"model": plan.model, "stream": plan.stream, "messages": [{"role": "user", "content": plan.prompt}]}
        if plan.max_tokens:
            body |= {"max_tokens": plan.max_tokens, "temperature": 0}
        data = json.dumps(body).encode()
        self._request = (
            b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer %b\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (plan.path.encode(), plan.key.encode(), len(data), data)
        )
        self._end = b"data: [DONE]" if plan.stream else b'"usage"'
        self._plan, self._result, self._left, self._done = plan, result, left, done
        self._refused = False
        self._tail = b""
        self._began = 0.0
        self._seen_end = self._answered = self._first = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._next()

    def _next(self) -> None:
        self._tail = b""
        if not self._left[0]:
            self._transport.close()
            return
        self._left[0] -= 1
        self._began, self._answered, self._first = time.perf_counter(), False, False
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._answered:
            self._answered = True
            if b" 200 " not in data[:16]:
                self._fail(data)
                return
        if not self._first and b'"content":"' in data:
            self._first = True
            self._result.ttft.append(time.perf_counter() - self._began)
        self._result.bytes += len(data)
        self._result.chunks += data.count(b'"content":')
        window = self._tail + data
        if self._end in window:
            self._seen_end = True
        if self._seen_end and window.endswith((b"0\r\n\r\n", b"}")):
            self._seen_end = False
            self._result.ok += 1
            self._next()
            return
        self._tail = window[-64:]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tail:
            self._result.failed += 1
            self._tail = b""
        elif self._left[0] and not self._refused:  # the server keeps no connection: go on with a new one
            self._again = asyncio.ensure_future(connect(self._plan, self))
            return
        if not self._done.done():
            self._done.set_result(None)

    def _fail(self, data: bytes) -> None:
        self._result.failed += 1
        self._refused = True
        self._result.first_error = self._result.first_error or data[:300].decode("latin-1")
        self._tail = b""
        self._transport.close()


async def connect(plan: Plan, client: Client) -> None:
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", plan.port)


async def run(plan: Plan) -> Result:
    loop = asyncio.get_running_loop()
    result, left, waits = Result(), [plan.requests], []
    began = time.perf_counter()
    for number in range(plan.connections):
        done: asyncio.Future[None] = loop.create_future()
        waits.append(done)
        await connect(plan, Client(plan, result, left, done))
        if plan.ramp_s:
            await asyncio.sleep(max(0.0, began + plan.ramp_s * (number + 1) / plan.connections - time.perf_counter()))
    await asyncio.gather(*waits)
    result.seconds = time.perf_counter() - began
    return result


def main() -> None:
    result = uvloop.run(run(Plan(**json.loads(sys.argv[1]))))
    ttft = sorted(result.ttft) or [0.0]
    print(json.dumps({
        "ok": result.ok, "failed": result.failed, "chunks": result.chunks, "seconds": result.seconds,
        "ttft_median": statistics.median(ttft), "ttft_p99": ttft[min(len(ttft) - 1, int(len(ttft) * 0.99))],
        "first_error": result.first_error,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
