"""Each port's suite runs in process on SQLite, in process on PostgreSQL, and through HTTP to a real server."""

from pathlib import Path

import pytest

from tests.support.postgres import postgres_database, postgres_server

__all__ = ["postgres_database", "postgres_server"]

PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "http"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if place == "postgres":
        return str(request.getfixturevalue("postgres_database"))
    return f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"
