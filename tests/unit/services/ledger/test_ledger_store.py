import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.common.errors import Overloaded
from services.common.sql import migrate, open_database, reading, writing
from services.ledger.service import LedgerService
from services.ledger.store import MIGRATIONS, LedgerStore, metadata, spent_query
from tests.support.ledger import query, used
from tests.support.postgres import postgres_database, postgres_server

__all__ = ["postgres_database", "postgres_server"]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_database"))
    return f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[AsyncEngine]:
    engine = open_database(database_url)
    await migrate(engine, "ledger", MIGRATIONS)
    yield engine
    await engine.dispose()


async def test_migrations_make_the_table_that_the_queries_expect(engine: AsyncEngine) -> None:
    await migrate(engine, "ledger", MIGRATIONS)

    def differences(connection: Connection) -> list[object]:
        found = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)
        return [change for change in found if not str(change[-1].name).startswith("alembic_")]

    async with reading(engine) as connection:
        assert await connection.run_sync(differences) == []


@pytest.mark.parametrize(
    "deed", ["UPDATE usage_records SET cost = 0", "DELETE FROM usage_records WHERE id = 'a'"], ids=["update", "delete"]
)
async def test_records_are_immutable(engine: AsyncEngine, deed: str) -> None:
    ledger = LedgerService(LedgerStore(engine))
    await ledger.record([used("a", cost=5)])
    with pytest.raises(IntegrityError, match="immutable"):
        async with writing(engine) as db:
            await db.execute(text(deed))
    assert await ledger.spent(query()) == 5


async def test_what_a_tenant_has_spent_is_one_range_of_an_index(engine: AsyncEngine) -> None:
    ledger = LedgerService(LedgerStore(engine))
    await ledger.record(
        [used(f"{tenant}{number}", float(number), tenant=tenant) for tenant in "abc" for number in range(900)]
    )
    asked = spent_query(query(tenant="b", start=100.0, end=120.0))
    statement = str(asked.compile(engine.sync_engine, compile_kwargs={"literal_binds": True}))
    if engine.dialect.name == "sqlite":
        explain, wanted = "EXPLAIN QUERY PLAN", "USING COVERING INDEX usage_of_tenant (tenant=? AND at>? AND at<?)"
    else:
        explain, wanted = "EXPLAIN", "usage_of_tenant"
        async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as db:
            await db.execute(text("VACUUM ANALYZE usage_records"))
    async with reading(engine) as db:
        plan = "\n".join(str(row) for row in await db.execute(text(f"{explain} {statement}")))
    assert wanted in plan
    assert "Seq Scan" not in plan


async def test_writers_of_the_same_records_do_not_stand_in_each_others_way(engine: AsyncEngine) -> None:
    ledgers = [LedgerService(LedgerStore(engine)) for _ in range(4)]
    records = [used(f"g{number}", cost=1) for number in range(300)]
    orders = [records, records[::-1], records[150:] + records[:150], records[::2] + records[1::2]]
    await asyncio.gather(*(ledger.record(order) for ledger, order in zip(ledgers, orders, strict=True)))
    assert await ledgers[0].spent(query()) == 300


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://nobody@127.0.0.1:1/none", "sqlite+aiosqlite:////nowhere/none.db"]
)
async def test_a_database_that_cannot_be_reached_is_an_overload(url: str) -> None:
    engine = open_database(url)
    ledger = LedgerService(LedgerStore(engine))
    with pytest.raises(Overloaded):
        await ledger.record([used("a")])
    with pytest.raises(Overloaded):
        await ledger.spent(query())
    await engine.dispose()
