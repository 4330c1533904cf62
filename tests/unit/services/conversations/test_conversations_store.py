import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine

import services.accounts.store as accounts
import services.conversations.store as conversations
from services.common import messages as m
from services.common.errors import Overloaded
from services.common.sql import migrate, open_database, reading
from services.conversations.service import ConversationService, MessageService
from services.conversations.store import MIGRATIONS, ConversationStore
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
    await migrate(engine, "conversations", MIGRATIONS)
    yield engine
    await engine.dispose()


async def test_migrations_make_the_tables_that_the_queries_expect(engine: AsyncEngine) -> None:
    await migrate(engine, "accounts", accounts.MIGRATIONS)
    await migrate(engine, "conversations", MIGRATIONS)

    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        both = MetaData()
        for table in (*conversations.metadata.sorted_tables, *accounts.metadata.sorted_tables):
            table.to_metadata(both)
        found = compare_metadata(context, both)
        return [change for change in found if not str(change[-1].name).startswith("alembic_")]

    async with reading(engine) as connection:
        assert await connection.run_sync(differences) == []
        names = await connection.run_sync(lambda c: c.dialect.get_table_names(c))
    assert {"alembic_conversations", "alembic_accounts"} <= set(names)


MIGRATE = """
import asyncio, sys
from services.common.sql import migrate, open_database
from services.conversations.store import MIGRATIONS
asyncio.run(migrate(open_database(sys.argv[1]), "conversations", MIGRATIONS))
"""


async def test_replicas_that_start_together_all_find_the_tables(database_url: str) -> None:
    command = (sys.executable, "-c", MIGRATE, database_url)
    started = [await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE) for _ in range(4)]
    failures = [await process.communicate() for process in started]
    assert [process.returncode for process in started] == [0] * 4, failures


async def test_writers_of_several_processes_never_find_it_locked(engine: AsyncEngine, database_url: str) -> None:
    engines = [engine, open_database(database_url), open_database(database_url)]
    made = await ConversationService(ConversationStore(engine)).create(m.NewConversation(tenant="a"))
    new = m.NewMessage(tenant="a", conversation_id=made.id, parent_id=None, role="user")
    writers = [MessageService(ConversationStore(each)) for each in engines]
    await asyncio.gather(*(writers[number % 3].append(new) for number in range(60)))
    stored = await writers[0].all(m.ConversationRef("a", made.id))
    assert len({message.created for message in stored}) == 60
    for other in engines[1:]:
        await other.dispose()


async def test_pages_never_part_conversations_of_one_instant(engine: AsyncEngine) -> None:
    now = 1_000.0
    service = ConversationService(ConversationStore(engine), clock=lambda: now)
    made = set()
    for instant in (1_000.0, 1_001.0, 1_001.0, 1_001.0, 1_002.0):
        now = instant
        made.add((await service.create(m.NewConversation(tenant="a"))).id)
    seen: list[str] = []
    before, more = None, True
    while more:
        page = await service.find(m.ConversationQuery(tenant="a", limit=2, before=before))
        seen += [item.id for item in page.items]
        before, more = page.items[-1].updated, page.more
    assert len(seen) == 5
    assert set(seen) == made


async def test_time_only_grows_when_the_clock_does_not(engine: AsyncEngine) -> None:
    now = 1_000.0
    made = await ConversationService(ConversationStore(engine), clock=lambda: now).create(m.NewConversation(tenant="a"))
    now = 900.0
    messages = MessageService(ConversationStore(engine), clock=lambda: now)
    new = m.NewMessage(tenant="a", conversation_id=made.id, parent_id=None, role="user")
    times = [made.updated] + [(await messages.append(new)).created for _ in range(5)]
    assert times == sorted(set(times))


async def test_lone_surrogates_are_replaced(engine: AsyncEngine) -> None:
    service = ConversationService(ConversationStore(engine))
    assert (await service.create(m.NewConversation(tenant="a", title="a\ud800b"))).title == "a\ufffdb"
    assert (await service.find(m.ConversationQuery(tenant="a", text="\udfff"))).items[0].title == "a\ufffdb"


@pytest.mark.parametrize(
    "url", ["postgresql+asyncpg://nobody@127.0.0.1:1/none", "sqlite+aiosqlite:////nowhere/none.db"]
)
async def test_a_database_that_cannot_be_reached_is_an_overload(url: str) -> None:
    with pytest.raises(Overloaded) as failure:
        await ConversationService(ConversationStore(open_database(url))).get(m.ConversationRef("a", "conv_" + "0" * 32))
    assert failure.value.retry_after
    with pytest.raises(Overloaded):
        await ConversationService(ConversationStore(open_database(url))).create(m.NewConversation(tenant="a"))


@pytest.mark.postgres
async def test_lost_connections_are_replaced(postgres_database: str) -> None:
    engine, killer = open_database(postgres_database), open_database(postgres_database)
    await migrate(engine, "conversations", MIGRATIONS)
    service = ConversationService(ConversationStore(engine))
    made = await service.create(m.NewConversation(tenant="a"))
    async with reading(killer) as db:
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        killed = await db.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
        assert killed.all()
    assert await service.get(m.ConversationRef("a", made.id)) == made
    await engine.dispose()
    await killer.dispose()


@pytest.mark.postgres
async def test_a_connection_lost_in_the_middle_is_an_overload(postgres_database: str) -> None:
    engine = open_database(postgres_database)
    with pytest.raises(Overloaded):
        async with reading(engine) as db:
            await db.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    await engine.dispose()
