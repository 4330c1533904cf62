"""Idempotency-Key around a handler: what runs once, what is replayed, and what gives the key back."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio
from structlog.testing import capture_logs

from gateway.exchange import PING, Exchange, error_headers
from gateway.idempotency import IdempotencyStore, Idempotent
from gateway.idempotency_files import FileIdempotency
from gateway.idempotency_redis import RedisIdempotency
from gateway.settings import GatewaySettings
from services.common.account_messages import Principal
from services.common.errors import AntiphonError, EngineFailed, InvalidRequest
from tests.support.redis import own_redis, redis_client, redis_prefix, redis_url
from tests.unit.gateway.driving import Exchanged

__all__ = ["redis_client", "redis_prefix", "redis_url"]

KEY = {"idempotency-key": "7f9c-order"}
BODY = {"model": "simulated", "n": 1}
ANN = Principal(tenant="org_a")


class Client:
    """Sends to one handler behind the policy. `runs` counts how often the handler was called."""

    def __init__(self, idempotent: Idempotent):
        self.idempotent = idempotent
        self.runs = 0
        self.errors: list[str] = []
        self.handle: Callable[[Exchange], Awaitable[None]] = whole

    def send(
        self, body: Any = BODY, headers: dict[str, str] = KEY, who: Principal = ANN, path: str = "/v1/run"
    ) -> Exchanged:
        async def app(scope: Any, receive: Any, send: Any) -> None:
            x = Exchange(scope, receive, send, GatewaySettings())
            x.principal = who
            await self._answer(x)

        return Exchanged(app, path, body, headers=headers)

    async def ask(self, *given: Any, **named: Any) -> Exchanged:
        return await self.send(*given, **named).done()

    async def _answer(self, x: Exchange) -> None:
        try:
            await self.idempotent.run(x, self._count)
        except asyncio.CancelledError:
            if not x.client_gone:
                raise
        except AntiphonError as e:
            if x.status:
                self.errors.append(e.message)
            else:
                await x.answer(e.status, json.dumps(e.body()).encode(), error_headers(e))
        finally:
            x.close()

    async def _count(self, x: Exchange) -> None:
        self.runs += 1
        await self.handle(x)


async def whole(x: Exchange) -> None:
    body = json.loads(await x.body())
    await asyncio.sleep(0.02)
    extra = [(b"x-ratelimit-remaining-tokens", b"7"), (b"x-antiphon-fallback", b"small")]
    await x.answer(200, json.dumps({"id": x.request_id, "asked": body}).encode(), extra)


def in_frames(*frames: bytes) -> Callable[[Exchange], Awaitable[None]]:
    async def stream(x: Exchange) -> None:
        await x.body()
        x.expect_stream()
        await x.start_stream()
        for frame in frames:
            await x.write(frame)
        await x.end_stream(b"data: [DONE]\n\n")

    return stream


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def client(folder: Path) -> Client:
    return Client(Idempotent(FileIdempotency(folder)))


@pytest.fixture(params=["files", "redis"])
def store(request: pytest.FixtureRequest, folder: Path) -> IdempotencyStore:
    if request.param == "files":
        return FileIdempotency(folder)
    return RedisIdempotency(request.getfixturevalue("redis_client"), request.getfixturevalue("redis_prefix"))


async def refused(client: Client, status: int, code: str, *given: Any, **named: Any) -> Exchanged:
    x = await client.ask(*given, **named)
    assert (x.status, x.error["code"], x.error["param"]) == (status, code, "Idempotency-Key")
    return x


async def until(happens: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not happens():
            await asyncio.sleep(0.01)


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_without_a_key_nothing_is_claimed_read_or_kept(client: Client, folder: Path) -> None:
    async def unread(x: Exchange) -> None:
        assert x.recorder is None
        await x.answer(200, b"{}")

    client.handle = unread
    answers = [await client.ask(headers={}) for _ in range(2)]
    assert [(x.status, x.taken, "idempotent-replayed" in x.headers) for x in answers] == [(200, 0, False)] * 2
    assert client.runs == 2
    assert files(folder) == []


@pytest.mark.parametrize("key", ["", "k" * 256, "clé", "a\tb", "a\x7fb"])
async def test_a_bad_key_is_refused_by_name(client: Client, key: str) -> None:
    x = await client.ask(headers={"idempotency-key": key})
    assert (x.status, x.error["param"], x.error["type"]) == (400, "Idempotency-Key", "invalid_request_error")
    assert client.runs == 0


async def test_two_keys_are_refused(client: Client) -> None:
    x = await client.ask(headers={"idempotency-key": "one", "Idempotency-Key": "two"})
    assert (x.status, x.error["param"]) == (400, "Idempotency-Key")


@pytest.mark.parametrize("key", ["k", "k" * 255, " ~!"])
async def test_a_good_key_is_taken(client: Client, key: str) -> None:
    for _ in range(2):
        assert (await client.ask(headers={"idempotency-key": key})).status == 200
    assert client.runs == 1


@pytest.mark.parametrize("handle", [whole, in_frames(b"data: 1\n\n", b"data: 2\n\n")], ids=["whole", "stream"])
async def test_fifty_duplicates_at_once_run_once_and_end_with_one_answer(store: IdempotencyStore, handle: Any) -> None:
    client = Client(Idempotent(store))
    client.handle = handle

    async def as_official_clients_do() -> Exchanged:
        while (x := await client.ask()).status == 409:
            assert (x.headers["retry-after"], x.error["code"]) == ("1", "idempotency_key_in_progress")
            await asyncio.sleep(0.02)
        return x

    answers = await asyncio.gather(*(as_official_clients_do() for _ in range(50)))
    assert client.runs == 1
    assert {x.status for x in answers} == {200}
    assert len({x.data for x in answers}) == 1
    assert sum("idempotent-replayed" not in x.headers for x in answers) == 1


async def test_a_replay_is_the_same_answer_under_its_own_request_id(client: Client) -> None:
    first, again = await client.ask(), await client.ask()
    assert again.data == first.data
    assert first.json["id"] == first.headers["x-request-id"] == again.headers["x-original-request-id"]
    assert again.headers["x-request-id"] not in ("", first.headers["x-request-id"])
    assert again.headers["idempotent-replayed"] == "true"
    for name in ("content-type", "content-length", "x-antiphon-fallback"):
        assert again.headers[name] == first.headers[name]
    assert "x-ratelimit-remaining-tokens" in first.headers
    assert "x-ratelimit-remaining-tokens" not in again.headers
    assert len(again.sent[0]["headers"]) == len(dict(again.sent[0]["headers"])), "a header is given twice"


async def test_a_stream_replays_its_log_without_the_heartbeats(client: Client) -> None:
    frames = (b'data: {"text": "a"}\n\n', b'data: {"text": "b"}\n\n')

    async def silent_between(x: Exchange) -> None:
        await x.start_stream()
        for frame in frames:
            x.tick(x.last_write + 16)
            await asyncio.sleep(0.01)
            await x.write(frame)
        await x.end_stream(b"data: [DONE]\n\n")

    client.handle = silent_between
    first, again = await client.ask(), await client.ask()
    assert first.data.count(PING) == 2
    assert again.data == b"".join(frames) + b"data: [DONE]\n\n"
    assert again.headers["content-type"] == first.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert again.headers["cache-control"] == "no-cache"
    assert "content-length" not in again.headers


async def test_a_large_stream_is_replayed_in_pieces_that_a_slow_reader_can_hold_up(client: Client) -> None:
    frame = b"data: " + b"x" * 1017 + b"\n\n"
    client.handle = in_frames(*[frame] * 1000)
    first, again = await client.ask(), await client.ask()
    assert again.data == first.data
    assert max(len(m.get("body", b"")) for m in again.sent) <= 64 << 10
    assert [m.get("more_body", False) for m in again.sent[1:]] == [True] * (len(again.sent) - 2) + [False]


async def test_an_answer_without_a_body_is_replayed(client: Client) -> None:
    async def empty(x: Exchange) -> None:
        await x.answer(200, b"")

    client.handle = empty
    await client.ask()
    again = await client.ask()
    assert (again.status, again.data, client.runs) == (200, b"", 1)


async def test_another_body_is_refused_while_the_first_runs_and_afterwards(client: Client) -> None:
    goes_on = asyncio.Event()

    async def slow(x: Exchange) -> None:
        await goes_on.wait()
        await whole(x)

    client.handle = slow
    first = client.send()
    await until(lambda: client.runs == 1)
    await refused(client, 422, "idempotency_key_reused", BODY | {"n": 2})
    await refused(client, 409, "idempotency_key_in_progress")
    goes_on.set()
    assert (await first.done()).status == 200
    await refused(client, 422, "idempotency_key_reused", BODY | {"n": 2})
    assert client.runs == 1


async def test_spaces_and_the_order_of_keys_make_no_other_body(client: Client) -> None:
    first = await client.ask(b'{"model": "m", "n": 1}')
    again = await client.ask(b'{"n":1,\n\t"model":"m"}')
    assert (again.data, client.runs) == (first.data, 1)


async def test_a_key_belongs_to_its_tenant_user_space_and_route(client: Client) -> None:
    for who in (
        ANN, Principal(tenant="org_b"), Principal(tenant="org_a", user_id="u"), Principal(tenant="org_a", space="u"),
    ):  # fmt: skip
        assert "idempotent-replayed" not in (await client.ask(who=who)).headers
    assert "idempotent-replayed" not in (await client.ask(path="/v1/other")).headers
    assert client.runs == 5
    other_key_of_the_same = Principal(tenant="org_a", key_id="key_2")
    assert "idempotent-replayed" in (await client.ask(who=other_key_of_the_same)).headers


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


async def test_what_is_stored_names_nobody(client: Client, folder: Path) -> None:
    await client.ask(who=Principal(tenant="org_acme", user_id="user_ann"))
    [path] = files(folder)
    assert len(path.stem) == 64
    stored = path.name.encode() + path.read_bytes()
    assert not [word for word in (b"org_acme", b"user_ann", b"7f9c-order") if word in stored]


async def test_answers_outlive_the_process(client: Client, folder: Path) -> None:
    first = await client.ask()
    restarted = Client(Idempotent(FileIdempotency(folder)))
    again = await restarted.ask()
    assert (again.data, restarted.runs) == (first.data, 0)


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
