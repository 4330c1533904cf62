"""What every store of idempotency keys promises: one holder a key, answers that stay, keys that come free again."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from gateway.idempotency import Claim, IdempotencyStore, Known
from gateway.idempotency_files import FileIdempotency
from gateway.idempotency_redis import RedisIdempotency
from services.common.errors import Overloaded
from tests.support.redis import own_redis, redis_client, redis_prefix, redis_url

__all__ = ["redis_client", "redis_prefix", "redis_url"]

Open = Callable[..., IdempotencyStore]
ANSWER = b"\x00 an answer \xff" * 1000


def claim(name: str = "key", body: bytes = b"{}") -> Claim:
    digest = hashlib.sha256(name.encode()).hexdigest()
    return Claim(digest, hashlib.sha256(body).digest(), os.urandom(16))


async def comes_free(store: IdempotencyStore, name: str) -> None:
    async with asyncio.timeout(10):
        while await store.claim(claim(name)) is not None:
            await asyncio.sleep(0.02)


@pytest.fixture(params=["files", "redis"])
async def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Each call is another process, which comes after the death of the former one."""
    if request.param == "files":

        def opened(*, claim_s: float = 0.0, **options: Any) -> IdempotencyStore:
            return FileIdempotency(tmp_path / "keys", **options)

        yield opened
        return
    prefix = request.getfixturevalue("redis_prefix")
    client = redis.asyncio.Redis.from_url(request.getfixturevalue("redis_url"))
    yield lambda **options: RedisIdempotency(client, prefix, **options)
    await client.aclose()


async def test_of_fifty_claims_at_once_one_is_granted(reopen: Open) -> None:
    store = reopen()
    found = await asyncio.gather(*(store.claim(claim()) for _ in range(50)))
    assert found.count(None) == 1
    assert {f for f in found if f} == {Known("running", claim().fingerprint)}


async def test_an_answer_is_there_for_all_who_ask_again(reopen: Open) -> None:
    store, first = reopen(), claim()
    assert await store.claim(first) is None
    await store.keep(first, ANSWER)
    for body in (b"{}", b"another"):
        assert await store.claim(claim(body=body)) == Known("finished", first.fingerprint, ANSWER)


async def test_a_large_answer_comes_back_whole(reopen: Open) -> None:
    store, first = reopen(), claim()
    large = os.urandom(5 << 20)
    assert await store.claim(first) is None
    await store.keep(first, large)
    assert await store.claim(claim()) == Known("finished", first.fingerprint, large)


async def test_keys_do_not_meet(reopen: Open) -> None:
    store = reopen()
    assert await store.claim(claim("one")) is None
    assert await store.claim(claim("two")) is None


async def test_a_claim_says_what_it_runs_while_it_runs(reopen: Open) -> None:
    store, first = reopen(), claim(body=b"first")
    assert await store.claim(first) is None
    assert await store.claim(claim(body=b"second")) == Known("running", first.fingerprint)


async def test_a_released_key_is_free(reopen: Open) -> None:
    store, first = reopen(), claim()
    assert await store.claim(first) is None
    await store.release(first)
    assert await store.claim(claim(body=b"another")) is None


async def test_a_finished_key_is_not_released(reopen: Open) -> None:
    store, first = reopen(), claim()
    assert await store.claim(first) is None
    await store.keep(first, ANSWER)
    await store.release(first)
    await store.keep(first, b"again")
    assert await store.claim(claim()) == Known("finished", first.fingerprint, ANSWER)


async def test_only_the_holder_keeps_releases_and_renews(reopen: Open) -> None:
    store, first, stranger = reopen(), claim(), claim()
    assert await store.claim(first) is None
    await store.keep(stranger, ANSWER)
    await store.renew(stranger)
    await store.release(stranger)
    assert await store.claim(claim()) == Known("running", first.fingerprint)
    await store.keep(first, ANSWER)
    assert await store.claim(claim()) == Known("finished", first.fingerprint, ANSWER)


async def test_that_an_answer_could_not_be_kept_is_remembered(reopen: Open) -> None:
    first = claim()
    store = reopen()
    assert await store.claim(first) is None
    await store.keep(first, b"")
    assert await store.claim(claim()) == Known("finished", first.fingerprint, b"")
    assert await reopen().claim(claim()) == Known("finished", first.fingerprint, b"")


async def test_an_answer_expires_and_its_key_is_free(reopen: Open) -> None:
    store, first = reopen(lifetime_s=0.2), claim()
    assert await store.claim(first) is None
    await store.keep(first, ANSWER)
    await comes_free(store, "key")


async def test_a_dead_holders_claim_comes_free_and_its_answers_stay(reopen: Open) -> None:
    dead = reopen(claim_s=0.3)
    done, running = claim("done"), claim("running")
    assert await dead.claim(done) is None
    assert await dead.claim(running) is None
    await dead.keep(done, ANSWER)
    alive = reopen(claim_s=0.3)
    await comes_free(alive, "running")
    assert await alive.claim(claim("done")) == Known("finished", done.fingerprint, ANSWER)


async def test_a_claim_that_is_renewed_stays_the_holders(reopen: Open) -> None:
    store, first = reopen(claim_s=0.5), claim()
    assert await store.claim(first) is None
    for _ in range(12):
        await asyncio.sleep(0.1)
        await store.renew(first)
    assert await store.claim(claim()) == Known("running", first.fingerprint)
    await store.keep(first, ANSWER)
    await store.renew(first)
    await asyncio.sleep(0.6)
    assert await store.claim(claim()) == Known("finished", first.fingerprint, ANSWER)


async def test_a_holder_that_lost_its_claim_does_not_overwrite_the_next(
    redis_client: redis.asyncio.Redis, redis_prefix: str
) -> None:
    store = RedisIdempotency(redis_client, redis_prefix, claim_s=0.05)
    stalled, next_one = claim(), claim()
    assert await store.claim(stalled) is None
    async with asyncio.timeout(10):
        while await store.claim(next_one) is not None:
            await asyncio.sleep(0.02)
    slow = RedisIdempotency(redis_client, redis_prefix)
    await slow.renew(next_one)
    await slow.keep(stalled, ANSWER)
    await slow.release(stalled)
    assert await slow.claim(claim()) == Known("running", next_one.fingerprint)


async def test_a_server_that_is_away_refuses_claims_and_has_them_again_when_it_is_back() -> None:
    first = claim()
    with own_redis() as server:
        client = redis.asyncio.Redis.from_url(server.url)
        store = RedisIdempotency(client, "test:")
        assert await store.claim(first) is None
        server.kill()
        for call in (store.claim(claim("other")), store.renew(first), store.keep(first, ANSWER), store.release(first)):
            with pytest.raises(Overloaded) as refused:
                await call
            assert refused.value.retry_after == 1
        server.start()
        await store.renew(first)
        assert await store.claim(claim()) == Known("running", first.fingerprint)
        await store.keep(first, ANSWER)
        assert await store.claim(claim()) == Known("finished", first.fingerprint, ANSWER)
        await client.aclose()


async def test_a_server_without_room_refuses_claims() -> None:
    with own_redis("--maxmemory", "1") as server:
        client = redis.asyncio.Redis.from_url(server.url)
        with pytest.raises(Overloaded):
            await RedisIdempotency(client, "test:").claim(claim())
        await client.aclose()


async def test_a_claim_whose_reply_was_lost_is_still_granted(
    redis_client: redis.asyncio.Redis, redis_prefix: str
) -> None:
    """The client sends it once more by itself."""
    store, first = RedisIdempotency(redis_client, redis_prefix), claim()
    assert await store.claim(first) is None
    assert await store.claim(first) is None
    assert await store.claim(claim()) == Known("running", first.fingerprint)
