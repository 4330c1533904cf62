"""What `Audit` promises, wherever it runs."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from services.accounts import audit_store
from services.accounts.chain import Chain
from services.common import account_messages as a
from services.common.account_ports import Audit
from services.common.errors import InvalidRequest
from services.common.sql import writing
from tests.support.accounts import PEPPER, House, opened


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        yield house


@pytest.fixture
def port(house: House) -> Audit:
    return house.ports.audit


def entry(number: int = 0, **fields: object) -> a.AuditEntry:
    return a.AuditEntry(**{"tenant": "a", "actor": "u", "action": "thing.do", "target": str(number)} | fields)  # type: ignore[arg-type]


async def test_an_empty_log_is_whole(port: Audit) -> None:
    assert await port.verify() == a.AuditReport(entries=0, head="")


async def test_an_entry_gets_its_place_and_time(house: House, port: Audit) -> None:
    details = {"b": [1, 2.5, None, True, "\x00\u2028é"], "a": {"deep": {}}}
    first = await port.append(entry(details=details, seq=77, at=5.0, hash="mine"))
    house.clock.now += 0.1
    second = await port.append(entry())
    assert (first.seq, second.seq, first.details) == (1, 2, details)
    assert (first.at, second.at) == (house.clock.now - 0.1, house.clock.now)
    assert await house.told() == [first, second]
    assert await port.verify() == a.AuditReport(entries=2, head=second.hash)


async def test_equal_entries_have_different_hashes(port: Audit) -> None:
    made = [await port.append(entry()) for _ in range(5)]
    assert len({item.hash for item in made}) == 5


async def test_pages_and_filters(house: House, port: Audit) -> None:
    for number in range(10):
        who, what = ("ann", "key.create") if number % 2 else ("bob", "key.revoke")
        await port.append(entry(number, actor=who, action=what, tenant="a" if number < 8 else "b"))

    async def found(tenant: str | None = "a", **query: object) -> list[int]:
        return [item.seq for item in await port.entries(a.AuditQuery(tenant=tenant, **query))]  # type: ignore[arg-type]

    assert await found() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert await found("b") == [10, 9]
    assert await found(None) == list(range(10, 0, -1))
    assert await found(limit=3) == [8, 7, 6]
    assert await found(limit=3, before=6) == [5, 4, 3]
    assert await found(actor="ann") == [8, 6, 4, 2]
    assert await found(action="key.revoke", before=6) == [5, 3, 1]
    assert await found("nobody\x00") == []
    for query in ({"limit": 0}, {"limit": 1001}, {"before": -1}, {"before": 1 << 63}):
        with pytest.raises(InvalidRequest) as failure:
            await found(**query)
        assert failure.value.param in query


async def test_fifty_appends_at_once_keep_one_chain(house: House, port: Audit) -> None:
    made = await asyncio.gather(*(port.append(entry(number)) for number in range(50)))
    assert sorted(item.seq for item in made) == list(range(1, 51))
    assert sorted(item.target for item in await house.told()) == sorted(str(number) for number in range(50))
    report = await port.verify()
    assert (report.entries, report.broken_at) == (50, None)
    assert report.head == max(made, key=lambda item: item.seq).hash


async def test_deeds_and_appends_share_the_chain(house: House, port: Audit) -> None:
    await house.organisation("a")
    await asyncio.gather(*(house.key() for _ in range(10)), *(port.append(entry(n)) for n in range(10)))
    assert (await port.verify()).entries == 21


async def test_more_than_a_batch_is_verified(house: House, port: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_store, "BATCH", 10)
    chain = Chain(PEPPER)
    async with writing(house.engine) as db:
        for number in range(35):
            await audit_store.add(db, chain, entry(number))
    assert (await port.verify()).entries == 35


async def test_the_database_refuses_to_change_the_log(house: House, port: Audit) -> None:
    await port.append(entry())
    for statement in ("UPDATE audit_log SET actor = 'x'", "DELETE FROM audit_log", "UPDATE audit_log SET seq = 9"):
        with pytest.raises(DBAPIError, match="append-only"):
            async with writing(house.engine) as db:
                await db.execute(text(statement))
    assert (await port.verify()).entries == 1


async def test_bad_fields_are_named(house: House, port: Audit) -> None:
    for param, fields in (
        ("action", {"action": "key"}),
        ("action", {"action": "Key.create"}),
        ("action", {"action": "key.create\n"}),
        ("tenant", {"tenant": "x" * 301}),
        ("actor", {"actor": "x" * 301}),
        ("target", {"target": "x" * 301}),
        ("details", {"details": {"x": "y" * 20_000}}),
    ):
        with pytest.raises(InvalidRequest) as failure:
            await port.append(entry(**fields))  # type: ignore[arg-type]
        assert failure.value.param == param
    await port.append(entry(actor="a\x00b", target="\x00"))
    assert (await port.verify()).entries == 1
