"""The parts that count, put together: what they say at the next start, and what gateways share."""

import io
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
from rich.console import Console

from deploy.embedded import platform
from deploy.settings import ServeSettings
from gateway.auth import LOCAL
from gateway.ports import GatewayPorts
from services.chat.turn import Turn
from services.common.errors import RateLimited
from services.common.messages import Event, GenerationRequest, Message, Sampling, Usage
from services.common.usage_messages import OpenUsage, UsageQuery, UsageRecord
from services.ledger.journal import FileJournal
from tests.support.redis import OwnRedis, own_redis

TIERS = """
[enterprise.limits.chat]
organisation = { requests_per_minute = 2, concurrent_streams = 1 }
"""
EVER = UsageQuery(tenant=LOCAL.tenant, start=0, end=1e11)


@pytest.fixture(autouse=True)
def tight_tiers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiers.toml").write_text(TIERS)
    monkeypatch.setenv("ANTIPHON_TIERS", str(tmp_path / "tiers.toml"))


@pytest.fixture
def redis() -> Iterator[OwnRedis]:
    with own_redis() as server:
        yield server


def settings(home: Path, **more: str) -> ServeSettings:
    return ServeSettings(home=home, model="simulated", embedding_model="none", **more)  # type: ignore[arg-type]


def quiet() -> Console:
    return Console(file=io.StringIO())


def turn(id: str) -> Turn:
    request = GenerationRequest(
        model="simulated", messages=(Message(role="user", content="Hi"),), sampling=Sampling(max_tokens=3),
        request_id=id, tenant=LOCAL.tenant,
    )  # fmt: skip
    return Turn(principal=LOCAL, requests=(request,))


async def said(ports: GatewayPorts, id: str) -> list[Event]:
    async with aclosing(ports.turns.run(turn(id))) as events:
        return [event async for batch in events for event in batch]


async def records(ports: GatewayPorts) -> list[UsageRecord]:
    return list((await ports.ledger.records(EVER)).items)


async def test_usage_is_in_the_ledger_at_once_and_at_the_next_start(tmp_path: Path) -> None:
    async with platform(settings(tmp_path / "home"), quiet()) as (ports, _):
        usage = (await said(ports, "one"))[-1]
        assert isinstance(usage, Usage)
        stream = ports.turns.run(turn("two"))
        for _ in range(3):
            await anext(stream)
        await stream.aclose()
        now = await records(ports)
    assert [(r.id, r.outcome, r.output_tokens) for r in now] == [("one", "finished", 3), ("two", "cancelled", 2)]
    assert now[0].prompt_tokens == now[1].prompt_tokens == usage.prompt_tokens
    async with platform(settings(tmp_path / "home"), quiet()) as (ports, _):
        assert await records(ports) == now


async def test_what_a_killed_process_had_begun_is_in_the_ledger_before_the_first_request(tmp_path: Path) -> None:
    async with platform(settings(tmp_path / "home"), quiet()):
        pass
    journal = FileJournal(tmp_path / "home" / "usage")
    begun = UsageRecord(id="lost", tenant=LOCAL.tenant, at=1.0, model="simulated", worker="simulated", prompt_tokens=4)
    journal.count(journal.begin(OpenUsage(record=begun)), 9)
    journal.close()
    for _ in range(2):
        async with platform(settings(tmp_path / "home"), quiet()) as (ports, _):
            [record] = await records(ports)
            assert (record.id, record.outcome, record.prompt_tokens, record.output_tokens) == ("lost", "crashed", 4, 9)
            assert record.at > 1.0


async def test_limits_of_a_process_of_its_own_begin_anew_with_it(tmp_path: Path) -> None:
    for _ in range(2):
        async with platform(settings(tmp_path / "home"), quiet()) as (ports, _):
            await said(ports, "a")
            await said(ports, "b")
            with pytest.raises(RateLimited, match=r"2 requests per minute \(organisation, chat models\)"):
                await said(ports, "c")


async def test_gateways_with_one_redis_share_limits_and_their_restart_changes_nothing(
    tmp_path: Path, redis: OwnRedis
) -> None:
    one, two = (settings(tmp_path / name, redis_url=redis.url) for name in ("one", "two"))
    async with platform(one, quiet()) as (a, _), platform(two, quiet()) as (b, _):
        stream = a.turns.run(turn("a"))
        await anext(stream)
        with pytest.raises(RateLimited, match="1 streams at a time"):
            await said(b, "b")
        await stream.aclose()
        await said(b, "b")
    async with platform(two, quiet()) as (b, _):
        with pytest.raises(RateLimited, match="2 requests per minute"):
            await said(b, "c")


async def test_a_gateway_starts_without_its_redis_and_limits_alone(tmp_path: Path, redis: OwnRedis) -> None:
    redis.kill()
    async with platform(settings(tmp_path / "home", redis_url=redis.url), quiet()) as (ports, _):
        await said(ports, "a")
        await said(ports, "b")
        with pytest.raises(RateLimited):
            await said(ports, "c")
