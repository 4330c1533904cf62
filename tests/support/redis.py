"""A real Redis for tests: `redis_client` and `redis_prefix` on one that all tests share, `own_redis()` to be killed.

The shared server is the one that ANTIPHON_TEST_REDIS names, else one on 127.0.0.1:6379, else a temporary one started
from the `redis-server` binary. Every key of a test begins with its `redis_prefix`, and is gone at the test's end.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
import redis.asyncio

LOCAL = "redis://127.0.0.1:6379/0"
MISSING = (
    "These tests need Redis. Install it (`apt-get install redis-server`), or name a server: "
    "ANTIPHON_TEST_REDIS=redis://host:6379/0"
)


class OwnRedis:
    """A server on a port of its own, which stays the same when it is started again. It comes back empty."""

    def __init__(self, folder: Path, *options: str):
        binary = shutil.which("redis-server")
        if binary is None:
            pytest.fail(MISSING)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._log = folder / "redis.log"
        settings = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "", *options]
        # The kernel ends it with this process, should that be killed.
        leashed = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self._command = [*leashed, binary, *settings]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers. To be called from the main thread."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while failure := _refusal(self.url):
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"redis-server did not start: {failure}\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL: what it held is lost."""
        if self._process:
            self._process.kill()
            self._process.wait(10)
            self._process = None


@contextmanager
def own_redis(*options: str) -> Iterator[OwnRedis]:
    """`with own_redis("--maxmemory", "8mb") as server: … server.url … server.kill() … server.start()`."""
    folder = Path(tempfile.mkdtemp(prefix="antiphon-redis-"))
    server = OwnRedis(folder, *options)
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    named = os.environ.get("ANTIPHON_TEST_REDIS", "")
    if named:
        if failure := _refusal(named):
            pytest.fail(f"ANTIPHON_TEST_REDIS names a server that does not answer: {failure}")
        yield named
    elif not _refusal(LOCAL):
        yield LOCAL
    else:
        with own_redis() as server:
            yield server.url


@pytest.fixture
async def redis_client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    """Answers are bytes."""
    client = redis.asyncio.Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def redis_prefix(redis_url: str) -> Iterator[str]:
    prefix = f"antiphon-test:{secrets.token_hex(8)}:"
    yield prefix
    with redis.Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"{prefix}*", count=1000):
            client.delete(key)


def _refusal(url: str) -> str:
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=2, socket_timeout=2) as client:
            client.ping()
    except redis.RedisError as e:
        return f"{type(e).__name__}: {e}"
    return ""
