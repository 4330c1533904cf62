"""What an operator has got wrong about the database is said in words."""

from urllib.parse import urlsplit

import pytest

from services.common.errors import InvalidRequest
from services.common.sql import open_database, reading
from tests.support.postgres import postgres_server

__all__ = ["postgres_server"]


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql+asyncpg://host:port/name"], ids=["kind", "port"])
def test_a_url_that_cannot_be_read(url: str) -> None:
    with pytest.raises(InvalidRequest, match="database URL"):
        open_database(url)


@pytest.mark.parametrize(("user", "name"), [("nobody-of-ours", "postgres"), ("postgres", "no-such-database")])
async def test_a_role_or_a_database_that_is_not_there(postgres_server: str, user: str, name: str) -> None:
    at = urlsplit(postgres_server)
    password = f":{at.password}" if at.password else ""
    engine = open_database(f"postgresql+asyncpg://{user}{password}@{at.hostname}:{at.port}/{name}")
    with pytest.raises(InvalidRequest, match=r"The database refuses us: .*does not exist"):
        async with reading(engine):
            pass
    await engine.dispose()
