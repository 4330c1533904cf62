"""The official Python client, on the servers that all tests share."""

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.support.published import PUBLISHED
from tests.support.server import Server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """On the real model. No retries: what fails once must be seen."""
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture
async def async_client(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=server.key, max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture
def quick(simulated_server: Server) -> Iterator[openai.OpenAI]:
    """On the simulated engine."""
    with openai.OpenAI(
        base_url=f"{simulated_server.url}/v1", api_key=simulated_server.key, max_retries=0, timeout=60
    ) as made:
        yield made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where the published schema is not there, the checks against it are not either; pytest would call them skipped."""
    if not PUBLISHED:
        items[:] = [item for item in items if "_specification" not in getattr(item, "fixturenames", ())]
