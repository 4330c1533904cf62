"""Silence, slow senders and readers that do not read: what the clock does to a request."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.exchange import Exchange
from gateway.settings import GatewaySettings
from services.common.errors import EngineFailed
from services.common.messages import Finished, TextDelta, Usage
from tests.unit.gateway.driving import Gateway, gateway
from tests.unit.services.chat.parts import ScriptedEngine, until

PING = ": ping"


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine()


@pytest.fixture
async def edge(template: Path, tmp_path: Path, engine: ScriptedEngine) -> AsyncIterator[Gateway]:
    """The edge looks at its clock once a second."""
    async with gateway(
        template, tmp_path, engine, heartbeat=0.2, stall_timeout=0.5, body_timeout=0.2, max_body_bytes=1000
    ) as made:
        yield made


async def test_silence_before_and_between_tokens_gets_comments_that_change_nothing(
    edge: Gateway, engine: ScriptedEngine
) -> None:
    x = edge.chat(stream=True)
    await until(lambda: bool(x.data))
    engine.say(TextDelta(0, "Hello"))
    await until(lambda: b"Hello" in x.data)
    await until(lambda: x.data.endswith(b": ping\n\n"))
    engine.say(Finished(0, "stop"), Usage())
    engine.end()
    await x.done()
    assert x.frames[0] == PING
    assert [f for f in x.frames if f != PING][-1] == "data: [DONE]"
    assert x.frames.count(PING) <= 4


async def test_a_failure_after_a_heartbeat_is_an_event_because_the_status_is_gone(
    edge: Gateway, engine: ScriptedEngine
) -> None:
    x = edge.chat(stream=True)
    await until(lambda: bool(x.data))
    engine.fail(EngineFailed("It died."))
    await x.done()
    assert (x.status, x.frames[0]) == (200, PING)
    assert '"engine_failed"' in x.frames[-1]
    assert b"[DONE]" not in x.data


async def test_an_answer_that_is_no_stream_gets_no_heartbeat(edge: Gateway, engine: ScriptedEngine) -> None:
    x = edge.chat()
    await asyncio.sleep(1.3)
    assert x.sent == []
    engine.say(TextDelta(0, "Hello"), Finished(0, "stop"), Usage())
    engine.end()
    assert (await x.done()).json["choices"][0]["message"]["content"] == "Hello"


async def test_readers_that_do_not_read_are_cut_and_hold_up_nobody(edge: Gateway, engine: ScriptedEngine) -> None:
    """One is stuck in a token, two in a heartbeat; the fourth reads."""
    with capture_logs() as logs:
        stuck, silent, mute, reader = [edge.chat(stream=True) for _ in range(4)]
        for x in (stuck, silent, mute):
            await until(lambda: engine.running > 0)
            x.reading.clear()
        await until(lambda: engine.running == 4)
        engine.say(TextDelta(0, "to the first that asked"))
        await until(lambda: reader.data.count(b": ping") >= 2)
        for x in (stuck, silent, mute):
            await x.done(3)
        assert engine.running == 1
        reader.leave()
        await reader.done()
    assert [entry.get("stalled") for entry in logs if entry["event"] == "request"] == [True, True, True, None]
    assert all(entry["status"] == 499 for entry in logs if entry["event"] == "request")


async def test_a_reader_that_leaves_the_last_bytes_unread_is_cut_too(edge: Gateway, engine: ScriptedEngine) -> None:
    x = edge.chat(stream=True)
    engine.say(TextDelta(0, "Hello"))
    await until(lambda: bool(x.data))
    x.reading.clear()
    engine.say(Finished(0, "stop"), Usage())
    engine.end()
    await x.done(3)
    assert engine.running == 0
    whole = edge.chat()
    whole.reading.clear()
    engine.say(Finished(0, "stop"), Usage())
    engine.end()
    await whole.done(3)
    assert whole.sent == []


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/conversations"])
async def test_a_body_that_does_not_arrive_is_refused(edge: Gateway, path: str) -> None:
    x = edge.call(path)
    x.upload(b'{"model"', more=True)
    await x.done(3)
    assert (x.status, x.error["message"]) == (400, "The body did not arrive in time.")
    assert x.task.cancelling() == 0


async def exchange(sent: list[dict[str, object]], reading: asyncio.Event) -> Exchange:
    async def receive() -> dict[str, object]:
        return await asyncio.Future()

    async def send(message: dict[str, object]) -> None:
        await reading.wait()
        sent.append(message)

    return Exchange({"headers": []}, receive, send, GatewaySettings(heartbeat=15, stall_timeout=30))  # type: ignore[arg-type]


async def test_heartbeats_come_after_the_silence_that_is_set_and_not_before() -> None:
    sent: list[dict[str, object]] = []
    reading = asyncio.Event()
    reading.set()
    x = await exchange(sent, reading)
    await x.start_stream()
    await x.write(b"data: {}\n\n")
    now = asyncio.get_running_loop().time()
    for seconds, pings in [(14, 0), (16, 1), (20, 1), (30, 1), (32, 2)]:
        x.last_write = now if seconds == 14 else x.last_write
        x.tick(now + seconds)
        before = x.last_write
        await asyncio.sleep(0)
        x.last_write = before  # the ping's own clock is the real one, which has not moved
        assert sum(m.get("body") == b": ping\n\n" for m in sent) == pings
    x.close()


async def test_a_reader_is_cut_once_however_long_its_cleaning_up_takes() -> None:
    reading = asyncio.Event()
    cleaned = []

    async def serve() -> None:
        x = await exchange([], reading)
        loop = asyncio.get_running_loop()
        for delay in (0.01, 0.02, 0.03):
            loop.call_later(delay, x.tick, loop.time() + 31)
            loop.call_later(delay, x.cut)
        try:
            await x.start_stream()
        finally:
            await asyncio.sleep(0.05)  # an engine's connection being closed, say
            cleaned.append(True)

    task = asyncio.create_task(serve())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
