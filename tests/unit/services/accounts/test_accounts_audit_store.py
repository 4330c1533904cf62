"""The audit log in real databases: several processes write one chain, and what is done behind its back is found."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common import account_messages as a
from services.common.sql import writing
from tests.support.accounts import House, opened
from tests.support.postgres import postgres_database, postgres_server

__all__ = ["postgres_database", "postgres_server"]

ROOT = Path(__file__).parents[4]
PROCESSES, EACH = 3, 20
APPEND = f"""
import asyncio, sys
from services.accounts.audit import AuditLog
from services.accounts.store import AccountStore
from services.common.account_messages import AuditEntry
from services.common.sql import open_database
from tests.support.accounts import PEPPER

async def main():
    engine = open_database(sys.argv[1])
    log = AuditLog(AccountStore(engine, PEPPER))
    entry = AuditEntry(tenant="a", actor=sys.argv[2], action="thing.do")
    await asyncio.gather(*(log.append(entry) for _ in range({EACH})))
    await engine.dispose()

asyncio.run(main())
"""
GUARDS = {
    "sqlite": ["DROP TRIGGER audit_log_refuses_update", "DROP TRIGGER audit_log_refuses_delete"],
    "postgres": ["ALTER TABLE audit_log DISABLE TRIGGER ALL"],
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if place == "postgres":
        return str(request.getfixturevalue("postgres_database"))
    return f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        yield house


async def test_several_processes_write_one_chain(house: House, database_url: str) -> None:
    running = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", APPEND, database_url, str(number), cwd=ROOT)
        for number in range(PROCESSES)
    ]
    assert await asyncio.gather(*(process.wait() for process in running)) == [0] * PROCESSES
    report = await house.ports.audit.verify()
    assert (report.entries, report.broken_at) == (PROCESSES * EACH, None)
    actors = [entry.actor for entry in await house.told()]
    assert {actor: actors.count(actor) for actor in actors} == {str(number): EACH for number in range(PROCESSES)}


DEEDS = {
    "two that change places": (
        "UPDATE audit_log SET details = CASE seq WHEN 2 THEN '{\"n\":4}' ELSE '{\"n\":2}' END, hash = "
        "(SELECT hash FROM kept WHERE kept.seq = 6 - audit_log.seq) WHERE seq IN (2, 4)",
        2,
    ),
    "a changed actor": ("UPDATE audit_log SET actor = 'nobody' WHERE seq = 3", 3),
    "a changed time": ("UPDATE audit_log SET at = at + 1 WHERE seq = 3", 3),
    "a changed detail": ("UPDATE audit_log SET details = '{\"n\":4}' WHERE seq = 3", 3),
    "a detail written otherwise": ("UPDATE audit_log SET details = '{ \"n\":3}' WHERE seq = 3", 3),
    "no JSON": ("UPDATE audit_log SET details = 'x' WHERE seq = 3", 3),
    "a hash taken over": ("UPDATE audit_log SET hash = (SELECT hash FROM audit_log WHERE seq = 2) WHERE seq = 3", 3),
    "a removed entry": ("DELETE FROM audit_log WHERE seq = 3", 3),
    "a removed beginning": ("DELETE FROM audit_log WHERE seq < 3", 1),
    "another tenant": ("UPDATE audit_log SET tenant = 'b' WHERE seq = 5", 5),
    "an entry before the first": (
        "INSERT INTO audit_log (seq, at, tenant, actor, action, target, details, hash) "
        "VALUES (0, 1, 'a', 'u', 'key.create', '', '{}', 'x')",
        1,
    ),
    "an entry after the last": (
        "INSERT INTO audit_log (seq, at, tenant, actor, action, target, details, hash) "
        "VALUES (6, 1, 'a', 'u', 'key.create', '', '{}', 'x')",
        6,
    ),
}


async def do(house: House, *statements: str) -> None:
    async with writing(house.engine) as db:
        for statement in statements:
            await db.exec_driver_sql(statement)


async def test_what_is_done_behind_its_back_is_found(house: House, place: str) -> None:
    for number in range(1, 6):
        await house.ports.audit.append(a.AuditEntry(tenant="a", actor="u", action="thing.do", details={"n": number}))
    whole = await house.ports.audit.verify()
    await do(house, *GUARDS[place], "CREATE TABLE kept AS SELECT * FROM audit_log")
    for deed, (statement, broken_at) in DEEDS.items():
        await do(house, statement)
        report = await house.ports.audit.verify()
        assert (deed, report.broken_at, report.entries) == (deed, broken_at, broken_at - 1)
        assert await house.told()
        await do(house, "DELETE FROM audit_log", "INSERT INTO audit_log SELECT * FROM kept")
        assert await house.ports.audit.verify() == whole


async def test_a_deed_that_fails_leaves_no_entry(house: House) -> None:
    await house.organisation("a")
    before = await house.told()
    owner = await house.user(role="owner")
    refused = [
        house.organisation("a"),
        house.ports.members.remove_member(a.Ref("a", owner)),
        house.key(owner="user_unknown"),
        house.ports.keys.revoke_key(a.Ref("a", "key_unknown")),
    ]
    assert all(isinstance(e, Exception) for e in await asyncio.gather(*refused, return_exceptions=True))
    assert await house.told() == before
