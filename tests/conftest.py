"""Servers that tests share. Each is the real product in a process of its own, with a data folder of its own."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.server import MODEL, SIMULATED, Server, servers

MakeServer = Callable[..., Server]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the real engine, a small model and embeddings."""
    with Server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(scope="session")
def simulated_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the simulated engine (50 ms to the first token, 20 ms a token, 64 tokens) and real embeddings."""
    with Server(tmp_path_factory.mktemp("simulated"), model=SIMULATED) as started:
        yield started


@pytest.fixture
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MakeServer]:
    """A server of the test's own, to be killed: `start_server("--no-auth", model=…, BODY_TIMEOUT="1")`.

    Without embeddings unless the test names a model for them.
    """
    with ExitStack() as stack:

        def start(*options: str, model: str = SIMULATED, **settings: Any) -> Server:
            home = settings.pop("home", None) or tmp_path_factory.mktemp("own")
            return stack.enter_context(
                Server(home, *options, model=model, **({"EMBEDDING_MODEL": "none"} | settings))
            )  # fmt: skip

        yield start


@pytest.fixture
def start_real_server(start_server: MakeServer) -> MakeServer:
    return lambda *options, **settings: start_server(*options, model=MODEL, **settings)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for started in servers:
            report.sections.append((f"log of the server in {started.home}", started.log[-4000:]))
    return report
