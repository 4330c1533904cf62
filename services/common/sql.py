"""One way to open a database and to bring a component's tables up to date. SQLite and PostgreSQL."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from services.common.errors import InvalidRequest, Overloaded
from services.common.telemetry import log

PASSING_SQLSTATES = ("08", "53", "57")
"""PostgreSQL's classes for a lost connection, want of resources and an operator's intervention."""


def open_database(url: str) -> AsyncEngine:
    """`sqlite+aiosqlite:///path` or `postgresql+asyncpg://…`. Errors: `InvalidRequest` for any other."""
    if not url.startswith(("sqlite+aiosqlite://", "postgresql+asyncpg://")):
        raise InvalidRequest("A database URL begins with sqlite+aiosqlite:// or postgresql+asyncpg://.")
    try:
        make_url(url)
    except (ArgumentError, ValueError) as e:
        raise InvalidRequest("The database URL cannot be read: check its host, port and quoting.") from e
    if not url.startswith("sqlite"):
        return create_async_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=20, hide_parameters=True)
    engine = create_async_engine(url, connect_args={"timeout": 30}, hide_parameters=True)
    event.listen(engine.sync_engine, "connect", _tune_sqlite)
    return engine


def _tune_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    # WAL with NORMAL survives the death of the process; only the death of the machine may cost the last commits.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


@asynccontextmanager
async def reading(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A connection for queries. Errors: `Overloaded` while the database cannot be used."""
    with _failures_told():
        async with engine.connect() as connection:
            yield connection


@asynccontextmanager
async def writing(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """One transaction, committed at the end. Errors: `Overloaded` while the database cannot be used."""
    with _failures_told():
        async with engine.begin() as connection:
            if engine.dialect.name == "sqlite":
                # A transaction that has read and then finds another writer ahead fails at once, whatever the timeout.
                await connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection


@contextmanager
def _failures_told() -> Iterator[None]:
    try:
        yield
    except (DBAPIError, PoolExhausted, OSError) as e:
        if isinstance(e, DBAPIError) and _refused(e):
            raise InvalidRequest(f"The database refuses us: {e.orig}.") from e
        if isinstance(e, DBAPIError) and not _passing(e):
            raise
        log.warning("database_unavailable", cause=str(e))
        raise Overloaded("The database cannot be used now.", retry_after=1) from e


def _refused(error: DBAPIError) -> bool:
    """A wrong user or password, or a database that is not there: for the operator to mend."""
    return str(getattr(error.orig, "sqlstate", None)).startswith(("28", "3D"))


def _passing(error: DBAPIError) -> bool:
    state = str(getattr(error.orig, "sqlstate", None))
    return error.connection_invalidated or isinstance(error, OperationalError) or state.startswith(PASSING_SQLSTATES)


async def migrate(engine: AsyncEngine, component: str, scripts: Path) -> None:
    """Run the component's Alembic revisions in `scripts`; each component keeps a version table of its own."""
    with _failures_told():
        async with engine.begin() as connection:
            await connection.run_sync(_upgrade, component, scripts)


def _upgrade(connection: Connection, component: str, scripts: Path) -> None:
    # Replicas start together: one migrates, the others wait and then find nothing to do.
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('antiphon migrations'))")
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes.update(connection=connection, version_table=f"alembic_{component}")
    command.upgrade(config, "head")
