"""The lean client against a server that answers byte for byte what a test tells it to."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.lean_http import HIGH_WATER, ConnectionBroken, LeanClient, Target

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\n"
WHOLE = HEAD + b"content-length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"


async def request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await reader.readexactly(length)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[tuple[LeanClient, Target]]:
    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(guarded, "127.0.0.1", 0) as server:
        client = LeanClient()
        yield client, Target(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x?y=1", {"a": "b"})
        client.close()


async def fetch(client: LeanClient, target: Target, body: bytes = b"{}") -> tuple[int, bytes]:
    async with client.post(target, body) as answer:
        return answer.status, await answer.read()


def always(*writes: bytes, connections: list[int] | None = None) -> Handler:
    """Answers every request of every connection alike."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if connections is not None:
            connections.append(1)
        while True:
            await request(reader)
            for data in writes:
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0)

    return handler


async def test_a_request_is_what_was_asked_for() -> None:
    seen = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await request(reader))
        writer.write(WHOLE)

    async with serving(handler) as (client, target):
        assert await fetch(client, target, b'{"q": 1}') == (200, b"hello")
        lines = seen[0].split(b"\r\n")
        assert lines[0] == b"POST /v1/x?y=1 HTTP/1.1"
        assert {b"a: b", b"content-length: 8", b"host: 127.0.0.1:%d" % target.port} <= set(lines)
        assert seen[0].endswith(b'\r\n\r\n{"q": 1}')


@pytest.mark.parametrize("answer", [WHOLE, CHUNKED], ids=["length", "chunked"])
async def test_connections_are_used_again(answer: bytes) -> None:
    connections: list[int] = []
    async with serving(always(answer, connections=connections)) as (client, target):
        for _ in range(5):
            assert (await fetch(client, target))[0] == 200
        assert len(connections) == 1
        await asyncio.gather(*(fetch(client, target) for _ in range(4)))
        assert len(connections) == 4


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, len(CHUNKED) - 1), max_size=12))
def test_an_answer_may_be_cut_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(CHUNKED)]
    pieces = [CHUNKED[a:b] for a, b in itertools.pairwise(edges)]

    async def run() -> None:
        async with serving(always(*pieces)) as (client, target):
            assert await fetch(client, target) == (200, b"hello world")

    asyncio.run(run())


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + b"\r\nall of it")

    async with serving(handler) as (client, target):
        assert await fetch(client, target) == (200, b"all of it")
        assert await fetch(client, target) == (200, b"all of it")


async def test_a_pooled_connection_that_was_just_being_closed_costs_no_request() -> None:
    served: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        served.append(1)
        writer.write(WHOLE)
        await request(reader)  # the second one on this connection is never answered

    async with serving(handler) as (client, target):
        for _ in range(3):
            assert await fetch(client, target) == (200, b"hello")
        assert len(served) == 3


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200", HEAD + b"content-length: 9\r\n\r\nhalf", CHUNKED[:-5], b"nonsense\r\n\r\n"]
)
async def test_an_answer_that_is_cut_off_or_is_no_http_is_broken_and_never_looks_whole(sent: bytes) -> None:
    asked: list[int] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.append(1)
        writer.write(sent)

    async with serving(handler) as (client, target):
        with pytest.raises(ConnectionBroken):
            await fetch(client, target)
        assert len(asked) == 1


async def test_what_came_before_a_break_is_given_first() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + b"content-length: 9\r\n\r\nhalf")

    async with serving(handler) as (client, target), client.post(target, b"") as answer:
        assert await answer.readany() == b"half"
        with pytest.raises(ConnectionBroken):
            await answer.readany()


async def test_leaving_early_drops_the_connection() -> None:
    gone = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + b"content-length: 100\r\n\r\nbegun")
        await reader.read()
        gone.set()

    async with serving(handler) as (client, target):
        async with client.post(target, b"") as answer:
            assert await answer.readany() == b"begun"
        async with asyncio.timeout(2):
            await gone.wait()


async def test_a_cancelled_wait_for_the_head_drops_the_connection() -> None:
    asked, gone = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        asked.set()
        await reader.read()
        gone.set()

    async with serving(handler) as (client, target):
        task = asyncio.create_task(fetch(client, target))
        await asked.wait()
        task.cancel()
        async with asyncio.timeout(2):
            await gone.wait()


async def test_a_reader_that_waits_holds_the_sender_up() -> None:
    sent = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request(reader)
        writer.write(HEAD + b"content-length: %d\r\n\r\n" % (64 << 20))
        for _ in range(64):
            writer.write(bytes(1 << 20))
            await writer.drain()
            sent += 1

    async with serving(handler) as (client, target), client.post(target, b"") as answer:
        await asyncio.sleep(0.3)
        assert answer._size < HIGH_WATER + (1 << 20)
        assert sent < 64
        assert len(await answer.read()) == 64 << 20


async def test_a_server_that_is_not_there_is_broken_at_once() -> None:
    with pytest.raises(ConnectionBroken):
        await fetch(LeanClient(), Target("http://127.0.0.1:1/", {}))


def test_a_header_cannot_hold_a_second_one() -> None:
    with pytest.raises(ValueError, match="line break"):
        Target("http://127.0.0.1/", {"authorization": "Bearer x\r\nx-evil: 1"})
