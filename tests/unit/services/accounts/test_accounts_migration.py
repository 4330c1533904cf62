from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.accounts.store import MIGRATIONS, metadata
from services.common.sql import migrate, open_database
from tests.support.postgres import postgres_database, postgres_server

__all__ = ["postgres_database", "postgres_server"]

PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
KEY = "INSERT INTO api_keys (id, tenant, name, hint, digest, created, revoked) VALUES "


@pytest.fixture(params=PLACES)
def database_url(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_database"))
    return f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"


async def to(engine: AsyncEngine, revision: str, verb: str = "upgrade") -> None:
    def run(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes.update(connection=connection, version_table="alembic_accounts")
        getattr(command, verb)(config, revision)

    async with engine.begin() as db:
        await db.run_sync(run)


async def rows(engine: AsyncEngine, query: str) -> list[tuple[Any, ...]]:
    async with engine.connect() as db:
        return [tuple(row) for row in await db.execute(text(query))]


async def do(engine: AsyncEngine, *statements: str) -> None:
    async with engine.begin() as db:
        for statement in statements:
            await db.execute(text(statement))


async def before(engine: AsyncEngine) -> None:
    """An installation of the first revision, with two tenants."""
    await to(engine, "0001")
    await do(
        engine,
        KEY + "('k1', 'local', 'one', 'abcd', 'd1', 5.5, false), ('k2', 'local', '', 'efgh', 'd2', 4.5, true)",
        KEY + "('k3', 'acme', '', 'ijkl', 'd3', 7, false)",
        "INSERT INTO sessions (digest, tenant, expires) VALUES ('s1', 'local', 9e9)",
    )


async def test_old_keys_stay_good_and_old_sessions_end(database_url: str) -> None:
    engine = open_database(database_url)
    await before(engine)
    await migrate(engine, "accounts", MIGRATIONS)
    scopes = "model.request,model.read,conversations,usage.read"
    keys = "SELECT id, tenant, hint, digest, created, revoked, owner, project, scopes, models, expires FROM api_keys"
    assert await rows(engine, keys + " ORDER BY id") == [
        ("k1", "local", "abcd", "d1", 5.5, False, "", "", scopes, "", None),
        ("k2", "local", "efgh", "d2", 4.5, True, "", "", scopes, "", None),
        ("k3", "acme", "ijkl", "d3", 7, False, "", "", scopes, "", None),
    ]
    found = "SELECT id, name, tier, region, monthly_budget, suspended, operator, created FROM organisations ORDER BY id"
    assert await rows(engine, found) == [
        ("acme", "acme", "enterprise", "", None, False, False, 7),
        ("local", "local", "enterprise", "", None, False, True, 4.5),
    ]
    assert await rows(engine, "SELECT * FROM sessions") == []
    await engine.dispose()


async def test_what_a_column_must_hold_is_still_required(database_url: str) -> None:
    engine = open_database(database_url)
    await before(engine)
    await migrate(engine, "accounts", MIGRATIONS)
    named = "INSERT INTO api_keys (id, tenant, name, hint, digest, created, revoked, owner, project, scopes, models) VALUES "
    for statement in (
        KEY + "('k4', 'acme', '', '', 'd4', 1, false)",
        named + "('k4', 'acme', '', '', 'd1', 1, false, '', '', '', '')",
        named + "('k1', 'acme', '', '', 'd4', 1, false, '', '', '', '')",
    ):
        with pytest.raises(DBAPIError):
            await do(engine, statement)
    await do(engine, named + "('k4', 'acme', '', '', 'd4', 1, false, '', '', '', '')")
    await engine.dispose()


@pytest.mark.parametrize("old", [False, True], ids=["fresh", "upgraded"])
async def test_the_migrations_make_the_tables_that_the_code_uses(database_url: str, old: bool) -> None:
    engine = open_database(database_url)
    if old:
        await before(engine)
    await migrate(engine, "accounts", MIGRATIONS)

    def differences(connection: Connection) -> list[Any]:
        found = compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)
        return [item for item in found if "alembic_accounts" not in str(item)]

    async with engine.connect() as db:
        assert await db.run_sync(differences) == []
    await engine.dispose()


async def test_one_can_go_back(database_url: str) -> None:
    engine = open_database(database_url)
    await before(engine)
    await to(engine, "0002")
    await to(engine, "0001", "downgrade")
    assert await rows(engine, "SELECT id, digest FROM api_keys ORDER BY id") == [
        ("k1", "d1"),
        ("k2", "d2"),
        ("k3", "d3"),
    ]
    await to(engine, "0002")
    await engine.dispose()


USER = "INSERT INTO users (id, tenant, email, name, role, space, created) VALUES "
INVITE = "INSERT INTO invites (id, tenant, digest, email, role, created, expires, accepted_by) VALUES "


async def people(engine: AsyncEngine) -> None:
    """In an installation of the second revision."""
    await to(engine, "0002")
    await do(
        engine,
        *(
            USER + f"('{id}', '{tenant}', '{id}@x', '', '{role}', '{id}', {created})"
            for id, tenant, role, created in (
                ("first", "local", "owner", 2), ("second", "local", "owner", 3), ("older", "local", "member", 1),
                ("linked", "local", "admin", 4), ("theirs", "acme", "owner", 9), ("twin", "acme", "owner", 9),
            )
        ),
        "INSERT INTO identities (issuer, subject, user_id) VALUES ('i', 's', 'linked'), ('i', 't', 'gone')",
        INVITE + "('i1', 'acme', 'd1', '', 'member', 1, 2, '')",
    )  # fmt: skip


async def test_of_those_who_are_there_some_are_known(database_url: str) -> None:
    engine = open_database(database_url)
    await people(engine)
    await migrate(engine, "accounts", MIGRATIONS)
    assert await rows(engine, "SELECT id FROM users WHERE verified ORDER BY id") == [
        ("first",),
        ("linked",),
        ("theirs",),
    ]
    assert await rows(engine, "SELECT id, made_by FROM invites") == [("i1", "")]
    for statement in (
        USER + "('new', 'acme', 'new@x', '', 'member', 'new', 1)",
        INVITE + "('i2', 'acme', 'd2', '', 'member', 1, 2, '')",
        USER.replace("created", "created, verified") + "('new', 'acme', 'first@x', '', 'member', 'new', 1, false)",
    ):
        with pytest.raises(DBAPIError):
            await do(engine, statement)
    await do(engine, USER.replace("created", "created, verified") + "('new', 'acme', 'n@x', '', '', 'new', 1, false)")
    await engine.dispose()


async def test_one_can_go_back_to_not_knowing(database_url: str) -> None:
    engine = open_database(database_url)
    await people(engine)
    await to(engine, "0003")
    await to(engine, "0002", "downgrade")
    await do(engine, USER + "('new', 'acme', 'new@x', '', 'member', 'new', 1)")
    assert len(await rows(engine, "SELECT * FROM users")) == 7
    assert await rows(engine, "SELECT * FROM invites") == [("i1", "acme", "d1", "", "member", 1, 2, "")]
    await to(engine, "0003")
    await engine.dispose()
