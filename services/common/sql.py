"""One way to open a database and to bring a component's tables up to date. SQLite and PostgreSQL."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine


def open_database(url: str) -> AsyncEngine:
    """`sqlite+aiosqlite:///path` or `postgresql+asyncpg://…`."""
    if not url.startswith("sqlite"):
        return create_async_engine(url, pool_pre_ping=True, pool_size=10, max_overflow=20)
    engine = create_async_engine(url, connect_args={"timeout": 30})
    event.listen(engine.sync_engine, "connect", _tune_sqlite)
    return engine


def _tune_sqlite(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    # WAL with NORMAL survives the death of the process; only the death of the machine may cost the last commits.
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


async def migrate(engine: AsyncEngine, component: str, scripts: Path) -> None:
    """Run the component's Alembic revisions in `scripts`; each component keeps a version table of its own."""
    async with engine.begin() as connection:
        await connection.run_sync(_upgrade, component, scripts)


def _upgrade(connection: Connection, component: str, scripts: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes.update(connection=connection, version_table=f"alembic_{component}")
    command.upgrade(config, "head")
