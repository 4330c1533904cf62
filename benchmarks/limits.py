"""Limits: what a decision costs in memory and on Redis, and whether four processes on one Redis keep to one limit."""

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import redis
from redis.asyncio import Redis

from benchmarks.processes import child, free_port, wait_for_port
from benchmarks.report import Figure, show
from gateway.limit_fallback import FallbackBuckets
from gateway.limit_redis import RedisBuckets
from gateway.limit_store import BucketStore, MemoryBuckets
from gateway.limiter import TierLimiter
from gateway.limits import DAY
from services.accounts.tiers import TierFile
from services.common.account_messages import Principal
from services.common.usage_messages import Ask, Limits, Reservation, Settlement, Tier

DECISIONS = 30_000
STREAMS_A_TENANT = 3
SENT = ("evalsha", "eval", "script|load", "hget", "multi", "exec", "ping")
LIMIT = 6_000
"""A minute, of the four processes."""


@dataclass(frozen=True)
class Fixed:
    """Tiers of a benchmark: one answer."""

    only: Tier

    def tier(self, name: str) -> Tier:
        return self.only

    def all(self) -> dict[str, Tier]:
        return {self.only.name: self.only}


def run() -> None:
    free = TierFile().tier("free")
    with redis_server() as url:
        show(
            "limits",
            [
                *asyncio.run(in_memory("free tier", free, most=20)),
                *asyncio.run(in_memory("nine buckets, none covers another", nine_buckets())),
                *asyncio.run(on_redis(url, free)),
                *processes(url),
            ],
        )


def nine_buckets() -> Tier:
    def limits(n: int) -> Limits:
        return Limits(
            requests_per_minute=1000 * n,
            tokens_per_minute=10**6 * n,
            tokens_per_day=10**8 * n,
            concurrent_streams=10 * n,
        )

    of_chat = {"organisation": limits(3), "user": limits(2), "key": limits(1)}
    return Tier(name="free", monthly_budget=10**12, limits={"chat": of_chat})  # type: ignore[dict-item]


async def in_memory(name: str, tier: Tier, most: float | None = None) -> list[Figure]:
    """A decision is to reserve; settling follows later. Three subjects, all buckets, a budget, a day between requests."""
    passing = iter(range(0, 10**18, DAY // 2))
    limiter = _limiter(tier, MemoryBuckets(lambda: next(passing)))
    await _decide(limiter, DECISIONS // 10)
    began = time.thread_time()
    decided, settled = await _decide(limiter, DECISIONS)
    mean = (time.thread_time() - began) / DECISIONS
    return [
        Figure(f"{name}: a decision in memory, p50", statistics.median(decided) * 1e6, "µs", most=most),
        Figure(f"{name}: settling it in memory, p50", statistics.median(settled) * 1e6, "µs"),
        Figure(f"{name}: both, mean CPU", mean * 1e6, "µs"),
    ]


async def _decide(limiter: TierLimiter, times: int) -> tuple[list[float], list[float]]:
    """Seconds to reserve, and to settle."""
    ask = Ask(principal=Principal(tenant="org_1", user_id="user_1", key_id="key_1"), tokens=300, cost=5)
    decided, settled = [], []
    for _ in range(times):
        begun = time.perf_counter()
        held = await limiter.reserve(ask)
        between = time.perf_counter()
        await limiter.settle(Settlement(id=held.id, tenant=held.tenant, tokens=250))
        decided.append(between - begun)
        settled.append(time.perf_counter() - between)
    return decided, settled


async def on_redis(url: str, free: Tier) -> list[Figure]:
    """As the product asks it. Tenants are many, so that all requests are granted."""
    client = Redis.from_url(url)
    limiter = _limiter(free, FallbackBuckets(RedisBuckets(client, "limits"), 1))
    tenants = [f"org_{n}" for n in range(500)]
    for tenant in tenants:  # the first of a month asks the ledger
        await _settle(limiter, await _reserve(limiter, tenant))
    before = await _commands(client)
    reserving, held = [], []
    for tenant in tenants * STREAMS_A_TENANT:
        begun = time.perf_counter()
        held.append(await _reserve(limiter, tenant))
        reserving.append(time.perf_counter() - begun)
    commands = await _commands(client) - before
    settling = []
    for each in held:
        begun = time.perf_counter()
        await _settle(limiter, each)
        settling.append(time.perf_counter() - begun)
    await client.aclose()
    return [
        Figure("free tier: reserve on Redis, p50", statistics.median(reserving) * 1e3, "ms", most=1),
        Figure("free tier: reserve on Redis, p99", statistics.quantiles(reserving, n=100)[98] * 1e3, "ms"),
        Figure("free tier: settle on Redis, p50", statistics.median(settling) * 1e3, "ms"),
        Figure("free tier: commands sent to Redis to reserve", commands / len(reserving), "", most=1),
    ]


async def _reserve(limiter: TierLimiter, tenant: str) -> Reservation:
    return await limiter.reserve(Ask(principal=Principal(tenant=tenant, user_id="u", key_id="k"), tokens=1, cost=1))


async def _settle(limiter: TierLimiter, held: Reservation) -> None:
    await limiter.settle(Settlement(id=held.id, tenant=held.tenant, tokens=1))


async def _commands(client: Redis) -> int:
    """Those that clients have sent: a script's own calls are not in it, nor is INFO before this one."""
    stats = await client.info("commandstats")
    return sum(int(stats[f"cmdstat_{name}"]["calls"]) for name in SENT if f"cmdstat_{name}" in stats)


def processes(url: str, seconds: float = 60) -> list[Figure]:
    """Four gateways, the clock of one five minutes ahead and of one five minutes behind, at five times the limit."""
    plan = {
        "url": url, "prefix": "processes", "processes": 4, "limit": LIMIT, "pace": 5 * LIMIT / 60 / 4, "seconds": seconds,
    }  # fmt: skip
    counts = run_processes([plan | {"shift": shift} for shift in (0, 0, 300, -300)])
    elapsed = max(c["ended"] for c in counts) - min(c["began"] for c in counts)
    allowed = LIMIT / 60 * elapsed + LIMIT
    ratio = sum(c["admitted"] for c in counts) / allowed
    return [
        Figure("four processes on one Redis: offered / (rate · t)", sum(c["offered"] for c in counts) / (LIMIT / 60 * elapsed)),
        Figure("four processes on one Redis: admitted / (rate · t + burst)", ratio, "", most=1),
        Figure("four processes on one Redis: admitted / (rate · t + burst)", ratio, "", least=0.98),
    ]  # fmt: skip


def run_processes(plans: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each process counted; they begin together."""
    with ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.limit_process"]
        running = [stack.enter_context(child([*command, json.dumps(p)], "ready"))[0] for p in plans]
        with redis.Redis.from_url(plans[0]["url"]) as client:
            client.set(f"{plans[0]['prefix']}:go", 1, ex=60)
        return [json.loads(next(line for line in process.stdout if line.startswith("{"))) for process in running]


@contextmanager
def redis_server() -> Iterator[str]:
    """One of its own, or the one that ANTIPHON_BENCH_REDIS names."""
    if named := os.environ.get("ANTIPHON_BENCH_REDIS"):
        yield named
        return
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError(
            "This needs redis-server (`apt-get install redis-server`), or ANTIPHON_BENCH_REDIS=redis://…"
        )
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""]
        process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL)
        try:
            wait_for_port(port)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait(20)


def _limiter(tier: Tier, store: BucketStore) -> TierLimiter:
    async def spent(tenant: str, since: float) -> int:
        return 0

    return TierLimiter(Fixed(tier), store, spent)
