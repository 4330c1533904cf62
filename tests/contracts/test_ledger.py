"""What `Ledger` promises, wherever it runs."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from services.common import usage_messages as u
from services.common.errors import InvalidRequest, NotFound
from services.common.usage_ports import Ledger
from tests.support.ledger import opened, query, used


@pytest.fixture
async def ledger(place: str, database_url: str) -> AsyncIterator[Ledger]:
    async with opened(place, database_url) as ledger:
        yield ledger


def at(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[misc]


FULL = u.UsageRecord(
    id="gen_1", tenant="org", at=1_000.25, kind="embedding", model="m", worker="w", user_id="u", key_id="k",
    project="p", prompt_tokens=10, cached_tokens=4, output_tokens=20, reasoning_tokens=7, tool_ms=1_500,
    outcome="cancelled", cost=2**53,
)  # fmt: skip


async def test_a_record_comes_back_as_it_was(ledger: Ledger) -> None:
    await ledger.record([FULL])
    assert await ledger.records(query()) == u.RecordPage((FULL,), False)


async def test_nothing_counts_twice(ledger: Ledger) -> None:
    first = used("g1", cost=5)
    await ledger.record([first])
    await ledger.record([used("g1", cost=7), used("g2", cost=100), used("g2", cost=200)])
    await ledger.record([first])
    assert await ledger.spent(query()) == 105
    assert [record.cost for record in (await ledger.records(query())).items] == [5, 100]


async def test_many_at_once_are_all_there_once(ledger: Ledger) -> None:
    records = [used(f"g{number}", cost=1, output_tokens=number) for number in range(1_200)]
    await asyncio.gather(
        ledger.record(records[:800]), ledger.record(records[400:][::-1]), ledger.record(records), ledger.record([])
    )
    (total,) = await ledger.totals(query())
    assert (total.requests, total.cost, total.output_tokens) == (1_200, 1_200, 1_200 * 1_199 // 2)


async def test_sums_are_exact(ledger: Ledger) -> None:
    costs = [2**53, 2**53 - 1, 1, 3]
    await ledger.record([used(f"g{number}", cost=cost, prompt_tokens=cost) for number, cost in enumerate(costs)])
    assert await ledger.spent(query()) == sum(costs)
    assert [total.prompt_tokens for total in await ledger.totals(query())] == [sum(costs)]


async def test_the_end_of_a_period_is_not_in_it(ledger: Ledger) -> None:
    await ledger.record([used("a", 100.0, cost=1), used("b", 200.0, cost=10), used("c", 300.0, cost=100)])
    assert await ledger.spent(query(start=100.0, end=300.0)) == 11
    assert await ledger.spent(query(start=100.5, end=300.5)) == 110
    assert await ledger.spent(query(start=300.0, end=100.0)) == 0


async def test_a_tenant_sees_its_own(ledger: Ledger) -> None:
    await ledger.record([used("a", cost=1), used("b", tenant="other", cost=10)])
    assert await ledger.spent(query()) == 1
    assert [total.cost for total in await ledger.totals(query(tenant="other"))] == [10]
    assert [record.id for record in (await ledger.records(query())).items] == ["a"]
    assert list(await ledger.totals(query(tenant="nobody"))) == []
    assert await ledger.spent(query(tenant="nobody")) == 0
    assert await ledger.records(query(tenant="nobody")) == u.RecordPage((), False)


@pytest.mark.parametrize("name", ["model", "key_id", "user_id", "project"])
async def test_each_filter_takes_what_it_names(ledger: Ledger, name: str) -> None:
    await ledger.record([used("a", cost=1, **{name: "x"}), used("b", cost=10, **{name: "y"})])
    assert await ledger.spent(query(**{name: "x"})) == 1
    assert [record.id for record in (await ledger.records(query(**{name: "y"}))).items] == ["b"]
    assert list(await ledger.totals(query(**{name: "z\x00"}))) == []


BUCKETS = [
    ("hour", at(2024, 2, 29, 23), [at(2024, 2, 29, 23), at(2024, 3, 1, 0), at(2024, 3, 31, 22), at(2024, 4, 1, 0)]),
    ("day", at(2024, 2, 29), [at(2024, 2, 29), at(2024, 3, 1), at(2024, 3, 31), at(2024, 4, 1)]),
    ("month", at(2024, 2, 1), [at(2024, 2, 1), at(2024, 3, 1), at(2024, 4, 1)]),
    ("all", 0.0, [0.0]),
]


@pytest.mark.parametrize(("bucket", "first", "starts"), BUCKETS, ids=[name for name, _, _ in BUCKETS])
async def test_buckets_are_those_of_the_calendar_in_utc(
    ledger: Ledger, bucket: str, first: float, starts: list[float]
) -> None:
    times = [
        at(2024, 3, 1) - 1e-6,
        at(2024, 3, 1),
        at(2024, 3, 31, 22, 30),
        at(2024, 4, 1),
        at(2024, 4, 1, 0, 59, 59) + 0.9999,
    ]
    await ledger.record([used(f"g{number}", time, cost=10**number) for number, time in enumerate(times)])
    totals = await ledger.totals(query(bucket=bucket))
    assert [total.start for total in totals] == starts
    assert totals[0].start == first
    assert sum(total.cost for total in totals) == 11_111
    if bucket != "all":
        assert totals[0].cost == 1
        assert totals[-1].cost == 11_000


async def test_all_begins_where_the_query_does(ledger: Ledger) -> None:
    await ledger.record([used("a", 500.0)])
    assert [total.start for total in await ledger.totals(query(start=123.5))] == [123.5]


async def test_totals_go_by_time_then_by_group(ledger: Ledger) -> None:
    await ledger.record(
        [
            used("1", 90_000.0, model="b", key_id="k1", cost=1, prompt_tokens=1, outcome="failed"),
            used("2", 10.0, model="b", key_id="k2", cost=10, cached_tokens=1),
            used("3", 10.0, model="a", key_id="k2", cost=100, reasoning_tokens=1),
            used("4", 20.0, model="a", key_id="k2", cost=1_000, tool_ms=5),
            used("5", 20.0, model="Z", key_id="k1", cost=10_000),
        ]
    )
    totals = await ledger.totals(query(bucket="day", group_by=("model", "key_id", "model")))
    assert list(totals) == [
        u.UsageTotal(start=0.0, group={"model": "Z", "key_id": "k1"}, requests=1, cost=10_000),
        u.UsageTotal(
            start=0.0, group={"model": "a", "key_id": "k2"}, requests=2, cost=1_100, reasoning_tokens=1, tool_ms=5
        ),
        u.UsageTotal(start=0.0, group={"model": "b", "key_id": "k2"}, requests=1, cost=10, cached_tokens=1),
        u.UsageTotal(start=86_400.0, group={"model": "b", "key_id": "k1"}, requests=1, cost=1, prompt_tokens=1),
    ]
    by_outcome = await ledger.totals(query(group_by=("outcome",)))
    assert [(total.group, total.cost) for total in by_outcome] == [
        ({"outcome": "failed"}, 1),
        ({"outcome": "finished"}, 11_110),
    ]


@pytest.mark.parametrize("group", ["model", "key_id", "user_id", "project", "kind", "outcome"])
async def test_one_can_group_by(ledger: Ledger, group: u.Grouping) -> None:
    await ledger.record([FULL])
    (total,) = await ledger.totals(query(group_by=(group,)))
    assert total.group == {group: getattr(FULL, group)}


async def test_pages_give_every_record_once_oldest_first(ledger: Ledger) -> None:
    records = [used(f"g{number:02}", float(number // 4)) for number in range(22)]
    await ledger.record(records[::-1])
    seen: list[u.UsageRecord] = []
    after, more = None, True
    while more:
        page = await ledger.records(query(after=after, limit=5))
        assert len(page.items) <= 5
        seen += page.items
        after, more = page.items[-1].id, page.more
    assert [record.id for record in seen] == [record.id for record in records]
    assert all(one.at <= next.at for one, next in pairwise(seen))
    assert (await ledger.records(query(after=after))) == u.RecordPage((), False)


async def test_nobody_goes_on_after_anothers_record(ledger: Ledger) -> None:
    await ledger.record([used("a", tenant="other")])
    for id in ("a", "nothing", "\x00"):
        with pytest.raises(NotFound) as failure:
            await ledger.records(query(after=id))
        assert failure.value.param == "after"


@pytest.mark.parametrize("limit", [0, -1, 10_001])
async def test_a_page_has_a_size(ledger: Ledger, limit: int) -> None:
    with pytest.raises(InvalidRequest) as failure:
        await ledger.records(query(limit=limit))
    assert failure.value.param == "limit"


BAD = [
    ("id", ""), ("tenant", ""), ("at", -1.0), ("at", 1e12), ("cost", -1), ("cost", 2**53 + 1), ("prompt_tokens", 2**63),
    ("cached_tokens", -1), ("output_tokens", 2**70), ("reasoning_tokens", -1), ("tool_ms", -1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
async def test_all_or_none_is_recorded(ledger: Ledger, name: str, value: object) -> None:
    bad = u.UsageRecord(**{"id": "bad", "tenant": "org", "at": 1.0, name: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest):
        await ledger.record([used("good"), bad])
    assert list(await ledger.totals(query())) == []


async def test_texts_that_cannot_be_stored_are_replaced(ledger: Ledger) -> None:
    await ledger.record([used("a", model="m\x00", project="é\U0001f600'; --")])
    (record,) = (await ledger.records(query())).items
    assert (record.model, record.project) == ("m\ufffd", "é\U0001f600'; --")


@pytest.mark.parametrize("name", ["start", "end"])
@pytest.mark.parametrize("time", [float("nan"), float("inf")])
async def test_a_period_has_two_ends(ledger: Ledger, name: str, time: float) -> None:
    with pytest.raises(InvalidRequest):
        await ledger.spent(query(**{name: time}))
