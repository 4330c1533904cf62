"""Idempotency-Key around a handler: what runs once, and what is replayed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.exchange import PING, Exchange
from gateway.idempotency import IdempotencyStore, Idempotent
from gateway.idempotency_files import FileIdempotency
from services.common.account_messages import Principal
from tests.support.redis import redis_client, redis_prefix, redis_url
from tests.unit.gateway.driving import Exchanged
from tests.unit.gateway.idempotent import (
    ANN,
    BODY,
    Client,
    client,
    files,
    folder,
    in_frames,
    refused,
    store,
    until,
    whole,
)

__all__ = ["client", "folder", "redis_client", "redis_prefix", "redis_url", "store"]


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
