"""A real PostgreSQL for tests: `postgres_database` is the URL of a fresh database, dropped at the test's end, and
`own_postgres()` a server to be stopped.

The server is the one that ANTIPHON_TEST_POSTGRES names (the URL of a superuser), else one on 127.0.0.1:5432 that lets
`postgres` in without a password, else a temporary one started from the binaries of the distribution.
"""

import asyncio
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

LOCAL = "postgresql://postgres@127.0.0.1:5432/postgres"
MISSING = (
    "These tests need PostgreSQL. Install it (`apt-get install postgresql`), or name a server's superuser: "
    "ANTIPHON_TEST_POSTGRES=postgresql://postgres:…@host:5432/postgres"
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a superuser, for asyncpg."""
    named = os.environ.get("ANTIPHON_TEST_POSTGRES", "").replace("+asyncpg", "")
    if named:
        failure = _refusal(named)
        if failure:
            pytest.fail(f"ANTIPHON_TEST_POSTGRES names a server that does not answer: {failure}")
        yield named
    elif not _refusal(LOCAL):
        yield LOCAL
    else:
        with own_postgres() as server:
            yield server.url


@pytest.fixture
async def postgres_database(postgres_server: str) -> AsyncIterator[str]:
    """The URL of an empty database, for SQLAlchemy."""
    name = f"antiphon_test_{secrets.token_hex(8)}"
    admin = await asyncpg.connect(postgres_server)
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
        yield urlsplit(postgres_server)._replace(scheme="postgresql+asyncpg", path=f"/{name}").geturl()
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await admin.close()


def _refusal(url: str) -> str:
    async def connect() -> None:
        await (await asyncpg.connect(url, timeout=5)).close()

    try:
        _wait_for(connect())
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as e:
        return f"{type(e).__name__}: {e}"
    return ""


def _wait_for(work: Coroutine[Any, Any, None]) -> None:
    # In a thread of its own, because the test's loop may already be the current one.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


class OwnPostgres:
    """A server on a port of its own, which stays the same when it is started again, with what it held."""

    def __init__(self, folder: Path, initdb: str):
        self._folder = folder
        self._binary = str(Path(initdb).with_name("postgres"))
        self._data = str(folder / "data")
        _quietly(
            [initdb, "--pgdata", self._data, "--username", "postgres", "--auth", "trust", "--no-sync", "-E", "UTF8"]
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.url = f"postgresql://postgres@127.0.0.1:{self._port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers. To be called from the main thread."""
        self._process = _start(self._binary, self._data, self._port, self._folder)
        _ready(self.url, self._process)

    def stop(self) -> None:
        """At once: SIGQUIT, the immediate shutdown, breaks every connection."""
        if self._process:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """`with own_postgres() as server: … server.url … server.stop() … server.start()`."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    initdb = str(found[-1]) if found else shutil.which("initdb")
    if initdb is None:
        pytest.fail(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="antiphon-postgres-"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        server = OwnPostgres(folder, initdb)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> list[str]:
    """PostgreSQL refuses to run as root."""
    return (
        ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--pdeathsig", "TERM"]
        if os.getuid() == 0
        else []
    )


def _quietly(command: list[str]) -> None:
    done = subprocess.run([*_unprivileged(), *command], capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        pytest.fail(f"{MISSING}\n{command[0]} failed: {done.stderr}")


def _start(binary: str, data: str, port: int, sockets: Path) -> subprocess.Popen[bytes]:
    options = ["-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", str(sockets), "-c", "fsync=off"]
    with (sockets / "log").open("wb") as log:
        return subprocess.Popen([*_unprivileged(), binary, *options], stdout=log, stderr=log, cwd="/")


def _ready(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while failure := _refusal(url):
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"{MISSING}\nThe temporary server did not start: {failure}")
        time.sleep(0.1)
