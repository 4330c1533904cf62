"""The ledger against the engine's own count: thousands of requests, a fifth of them cancelled, and one kill -9.

The engine is a process of its own, which counts what it processes and makes. The gateway in front of it is killed in the
middle and started again. In the end the ledger must have the same sums.
"""

import asyncio
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.processes import child, free_port
from benchmarks.report import Figure, show

REQUESTS = 5000
CONNECTIONS = 48
CANCELLED = 0.25
"""Of those that a client means to leave; some end before it does."""


class Gateway:
    """A process that is killed and started again on the same port and folder."""

    def __init__(self, home: str, engine: str):
        self._env = {"ANTIPHON_HOME": home, "ANTIPHON_LOG_LEVEL": "warning"}
        self.port = free_port()
        self._command = [sys.executable, "-m", "benchmarks.ledger_gateway", engine, str(self.port)]
        self.key = ""
        self.pid = 0

    @contextmanager
    def running(self) -> Iterator[Any]:
        with child(self._command, "Try:", self._env) as (process, lines):
            self.pid = process.pid
            shown = next(line for line in lines if "API key" in line).split()[-1]
            self.key = shown if shown.startswith("sk-") and "…" not in shown else self.key
            yield process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


def body(source: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    words = " ".join(source.choice("sea stone voice line hall".split()) for _ in range(source.randint(1, 60)))
    common = {"model": "simulated", "max_tokens": source.randint(1, 64), "stream": source.random() < 0.6}
    if number % 5 == 0:
        return "/v1/completions", common | {"prompt": [words, words + " again"]}
    return "/v1/chat/completions", common | {"messages": [{"role": "user", "content": f"{number} {words}"}]}


async def one(session: aiohttp.ClientSession, gateway: Gateway, number: int, outcomes: Counter[str]) -> None:
    source = random.Random(number)
    path, request = body(source, number)
    cancelled = source.random() < CANCELLED
    patience = source.uniform(0.02, 0.2) if cancelled else 60.0
    try:
        async with asyncio.timeout(patience):
            async with session.post(gateway.url + path, json=request, headers=gateway.auth) as response:
                await response.read()
                outcomes[str(response.status)] += 1
    except TimeoutError:
        outcomes["cancelled" if cancelled else "late"] += 1
    except aiohttp.ClientError:
        outcomes["broken"] += 1


async def drive(gateway: Gateway, numbers: Iterator[int], outcomes: Counter[str], until: int) -> None:
    """CONNECTIONS at a time, until that many have been started or the gateway is gone."""
    alive = True

    async def work(session: aiohttp.ClientSession) -> None:
        nonlocal alive
        while alive and sum(outcomes.values()) < until and (number := next(numbers, None)) is not None:
            await one(session, gateway, number, outcomes)
            if outcomes["broken"] and not _listening(gateway.port):
                alive = False

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(work(session) for _ in range(CONNECTIONS)))


def _listening(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


async def first_half(gateway: Gateway, numbers: Iterator[int], outcomes: Counter[str]) -> None:
    """Killed in the middle of its streams, by a client that has seen half of all requests end."""

    async def kill() -> None:
        while sum(outcomes.values()) < REQUESTS // 2:  # noqa: ASYNC110 (the counter tells nobody)
            await asyncio.sleep(0.01)
        os.kill(gateway.pid, signal.SIGKILL)

    await asyncio.gather(drive(gateway, numbers, outcomes, REQUESTS), kill())


async def counted(engine: str) -> dict[str, int]:
    async with aiohttp.ClientSession() as session, session.get(f"{engine}/counts") as response:
        return dict(json.loads(await response.read()))


async def recorded(gateway: Gateway) -> dict[str, int]:
    now = time.time()
    query = {"start": str(int(now) - 86400), "end": str(int(now) + 86400), "bucket": "all", "group_by": "outcome"}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{gateway.url}/v1/usage", params=query, headers=gateway.auth) as response,
    ):
        whole = json.loads(await response.read())
        if response.status != 200:
            raise RuntimeError(str(whole))
    data = whole["data"]
    found = {"prompt": sum(d["prompt_tokens"] for d in data), "output": sum(d["output_tokens"] for d in data)}
    return found | {d["group"]["outcome"]: d["requests"] for d in data}


def run() -> None:
    port = free_port()
    engine = f"http://127.0.0.1:{port}"
    outcomes: Counter[str] = Counter()
    numbers = iter(range(REQUESTS))
    with (
        tempfile.TemporaryDirectory() as home,
        child([sys.executable, "-m", "benchmarks.ledger_engine", str(port)], "ready"),
    ):
        gateway = Gateway(str(Path(home)), engine)
        with gateway.running():
            asyncio.run(first_half(gateway, numbers, outcomes))
        with gateway.running():
            asyncio.run(drive(gateway, numbers, outcomes, REQUESTS))
            with suppress(TimeoutError):
                asyncio.run(_settled(gateway, engine))
            ledger, own = asyncio.run(recorded(gateway)), asyncio.run(counted(engine))
    show(f"The ledger against the engine: {dict(outcomes)}; records {ledger}", [
        Figure("prompt tokens that the engine processed", float(own["prompt"])),
        Figure("output tokens that the engine made", float(own["output"])),
        Figure("prompt tokens by which the ledger differs", float(abs(own["prompt"] - ledger["prompt"])), "", most=0),
        Figure("output tokens by which the ledger differs", float(abs(own["output"] - ledger["output"])), "", most=0),
    ])  # fmt: skip


async def _settled(gateway: Gateway, engine: str) -> None:
    """Until nothing runs and the journal has gone to the ledger: two equal readings."""
    former: Any = None
    async with asyncio.timeout(30):
        while (now := (await counted(engine), await recorded(gateway))) != former or now[0]["running"]:
            former = now
            await asyncio.sleep(1.5)
