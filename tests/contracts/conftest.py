"""Each port's suite runs in process on SQLite, in process on PostgreSQL, and through HTTP to a real server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.engines import Subject, http_subject, llama_subject, openai_subject, simulated_subject
from tests.support.postgres import postgres_database, postgres_server

__all__ = ["postgres_database", "postgres_server"]

REAL_ENGINES = [
    pytest.param("llama_cpp", marks=pytest.mark.engine),
    pytest.param("openai", marks=pytest.mark.engine),
]
PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres), "http"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if place == "postgres":
        return str(request.getfixturevalue("postgres_database"))
    return f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=["simulated", "http", *REAL_ENGINES])
async def subject(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Subject]:
    folder = tmp_path_factory.mktemp("engine")
    made = {
        "simulated": simulated_subject,
        "http": http_subject,
        "llama_cpp": lambda: llama_subject(folder),
        "openai": lambda: openai_subject(folder),
    }[request.param]
    async with made() as subject:
        yield subject
