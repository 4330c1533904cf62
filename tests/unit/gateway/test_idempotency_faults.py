"""Idempotency-Key when something goes wrong: what gives the key back, and what must not run twice all the same."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from structlog.testing import capture_logs

from gateway.exchange import Exchange
from gateway.idempotency import IdempotencyStore, Idempotent
from gateway.idempotency_files import FileIdempotency
from gateway.idempotency_redis import RedisIdempotency
from services.common.errors import EngineFailed, InvalidRequest
from tests.support.redis import own_redis, redis_client, redis_prefix, redis_url
from tests.unit.gateway.idempotent import BODY, Client, client, files, folder, in_frames, refused, store, until, whole

__all__ = ["client", "folder", "redis_client", "redis_prefix", "redis_url", "store"]


async def failing_early(x: Exchange) -> None:
    raise InvalidRequest("No.")


async def failing_late(x: Exchange) -> None:
    await x.start_stream()
    await x.write(b"data: 1\n\n")
    raise EngineFailed("It died.")


async def answering_an_error(x: Exchange) -> None:
    await x.answer(429, b"{}")


async def answering_a_redirect(x: Exchange) -> None:
    await x.answer(307, b"{}")


@pytest.mark.parametrize("failing", [failing_early, failing_late, answering_an_error, answering_a_redirect])
async def test_what_fails_gives_the_key_back(client: Client, failing: Any) -> None:
    client.handle = failing
    await client.ask()
    client.handle = whole
    x = await client.ask()
    assert (x.status, "idempotent-replayed" in x.headers, client.runs) == (200, False, 2)


async def test_a_fault_of_ours_gives_the_key_back(client: Client) -> None:
    async def broken(x: Exchange) -> None:
        raise ZeroDivisionError

    client.handle = broken
    with pytest.raises(ZeroDivisionError):
        await client.ask()
    client.handle = whole
    assert (await client.ask()).status == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_in_the_middle_gives_the_key_back(store: IdempotencyStore, stream: bool) -> None:
    client = Client(Idempotent(store))

    async def endless(x: Exchange) -> None:
        await x.body()
        x.watch()
        if stream:
            await x.start_stream()
            await x.write(b"data: 1\n\n")
        await asyncio.sleep(60)

    client.handle = endless
    left = client.send()
    await until(lambda: client.runs == 1)
    left.leave()
    await left.done()
    client.handle = whole
    assert (await client.ask()).json["asked"] == BODY


async def test_a_client_that_leaves_before_the_last_byte_finds_the_answer(store: IdempotencyStore) -> None:
    """It was run and charged to its end."""
    client = Client(Idempotent(store))

    async def watched(x: Exchange) -> None:
        await x.body()
        x.watch()
        left.reading.clear()
        await x.answer(200, b'{"all": "of it"}')

    client.handle = watched
    left = client.send()
    await until(lambda: client.runs == 1)
    left.leave()
    await left.done()
    assert left.sent == []
    again = await client.ask()
    assert (again.data, client.runs) == (b'{"all": "of it"}', 1)


async def test_an_answer_too_large_to_keep_goes_out_and_is_not_run_twice(folder: Path) -> None:
    client = Client(Idempotent(FileIdempotency(folder), max_answer_bytes=1000))
    client.handle = in_frames(b"data: " + b"x" * 600 + b"\n\n", b"data: " + b"y" * 600 + b"\n\n", b"data: z\n\n")
    first = await client.ask()
    assert first.data.endswith(b"data: z\n\ndata: [DONE]\n\n")
    assert len(first.data) > 1200
    x = await refused(client, 409, "idempotency_answer_not_kept")
    assert "too large" in x.error["message"]
    await refused(client, 422, "idempotency_key_reused", BODY | {"n": 2})
    assert client.runs == 1


async def test_a_damaged_answer_is_one_that_was_not_kept(client: Client, folder: Path) -> None:
    await client.ask()
    [path] = files(folder)
    path.write_bytes(path.read_bytes()[:-5])
    await refused(client, 409, "idempotency_answer_not_kept")
    assert client.runs == 1


async def test_a_store_that_is_away_refuses_before_it_runs_and_keeps_after_it_is_back() -> None:
    with own_redis() as server:
        connection = redis.asyncio.Redis.from_url(server.url)
        idempotent = Idempotent(RedisIdempotency(connection, "test:"), keep_wait_s=0.05)
        client = Client(idempotent)

        async def loses_its_store(x: Exchange) -> None:
            server.kill()
            await whole(x)

        client.handle = loses_its_store
        with capture_logs() as logs:
            first = await client.ask()
            assert first.status == 200
            x = await client.ask(headers={"idempotency-key": "another"})
            assert (x.status, x.error["code"], x.headers["retry-after"]) == (503, "overloaded", "1")
            await asyncio.sleep(1)
            server.start()
            await idempotent.close(20)
        assert [entry["event"] for entry in logs] == ["idempotent_answer_not_kept_yet"]
        again = await client.ask()
        assert (again.data, client.runs) == (first.data, 1)
        await connection.aclose()


async def test_a_claim_outlives_its_term_while_its_run_lives(
    redis_client: redis.asyncio.Redis, redis_prefix: str
) -> None:
    store = RedisIdempotency(redis_client, redis_prefix, claim_s=0.5)
    client = Client(Idempotent(store, renew_s=0.1))

    async def long(x: Exchange) -> None:
        await asyncio.sleep(1.5)
        await whole(x)

    client.handle = long
    first = client.send()
    await until(lambda: client.runs == 1)
    while not first.task.done():
        x = await client.ask()
        assert x.status == 409 or first.task.done()
        await asyncio.sleep(0.05)
    assert (await client.ask()).data == first.data
    assert client.runs == 1
