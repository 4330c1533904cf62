import asyncio
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlalchemy import event

from services.accounts.keys import KeyService
from services.accounts.last_used import CAPACITY, LastUsed
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import InvalidApiKey, Overloaded
from services.common.sql import open_database
from tests.support.accounts import PEPPER, opened

MALFORMED = ["", "sk-", "sk-" + "é" * 43, "x" * 10_000_000, "sk-" + "a" * 43 + "\n", "\ud800", "ses-" + "a" * 43]


async def test_a_malformed_key_costs_the_query_that_an_unknown_one_costs(tmp_path: Path) -> None:
    async with opened("sqlite", f"sqlite+aiosqlite:///{tmp_path / 'test.db'}") as house:
        asked: list[tuple[str, int]] = []
        event.listen(
            house.engine.sync_engine,
            "before_cursor_execute",
            lambda _c, _u, statement, parameters, *_: asked.append((statement, len(str(parameters)))),
        )
        for secret in ["sk-" + "a" * 43, *MALFORMED]:
            with pytest.raises(InvalidApiKey):
                await house.ports.keys.authenticate(secret)
        assert len(asked) == 1 + len(MALFORMED)
        assert len(set(asked)) == 1


async def test_a_database_that_only_reads_lets_keys_in(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    async with opened("sqlite", f"sqlite+aiosqlite:///{path}") as house:
        await house.organisation("a")
        key = await house.key()
    engine = open_database(f"sqlite+aiosqlite:///file:{path}?mode=ro&uri=true")
    service = KeyService(AccountStore(engine, PEPPER), PEPPER)
    assert (await service.authenticate(str(key.secret))).key_id == key.id
    await service.close()
    await engine.dispose()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT last_used FROM api_keys").fetchall() == [(None,)]


async def test_a_writer_that_holds_the_database_delays_nobody(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    async with opened("sqlite", f"sqlite+aiosqlite:///{path}") as house:
        await house.organisation("a")
        key = await house.key()
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert (await asyncio.wait_for(house.who(key), 15)).key_id == key.id
        other.execute("ROLLBACK")
        other.close()


async def test_a_database_that_is_away_is_no_refusal(tmp_path: Path) -> None:
    engine = open_database("sqlite+aiosqlite:////nowhere/at/all.db")
    with pytest.raises(Overloaded):
        await KeyService(AccountStore(engine, PEPPER), PEPPER).authenticate("sk-" + "a" * 43)
    await engine.dispose()


class Written:
    def __init__(self) -> None:
        self.batches: list[Mapping[str, float]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.fails = False

    async def __call__(self, times: Mapping[str, float]) -> None:
        await self.go.wait()
        if self.fails:
            raise Overloaded("away")
        self.batches.append(times)


async def test_each_key_is_told_once_a_minute_and_together() -> None:
    written = Written()
    used = LastUsed(written, 60)
    written.go.clear()
    used.note("a", 0)
    await asyncio.sleep(0)
    for now in range(1, 100):
        used.note("a", now)
        used.note("b", now)
    written.go.set()
    await used.close()
    assert written.batches == [{"a": 0}, {"a": 60, "b": 61}]


async def test_what_cannot_be_written_stops_nothing() -> None:
    written = Written()
    used = LastUsed(written, 60)
    written.fails = True
    used.note("a", 0)
    await used.close()
    written.fails = False
    used.note("a", 60)
    await used.close()
    assert written.batches == [{"a": 60}]


async def test_memory_is_bounded() -> None:
    used = LastUsed(Written(), 60)
    for number in range(3 * CAPACITY):
        used.note(str(number), 0)
        assert len(used._told) <= CAPACITY
    await used.close()


async def test_the_first_use_of_two_processes_counts(tmp_path: Path) -> None:
    async with opened("sqlite", f"sqlite+aiosqlite:///{tmp_path / 'test.db'}") as house:
        await house.organisation("a")
        key = await house.key()
        start = house.clock.now
        for after, known in ((0, 0), (30, 0), (59, 0), (60, 60)):
            house.clock.now = start + after
            service = KeyService(AccountStore(house.engine, PEPPER), PEPPER, house.clock)
            await service.authenticate(str(key.secret))
            await service.close()
            (listed,) = await house.ports.keys.keys(a.KeyQuery(tenant="a"))
            assert listed.last_used == start + known
