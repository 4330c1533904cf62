"""One gateway's limiter on a shared Redis, asked at a steady pace: python -m benchmarks.limit_process '{…}'

Says "ready", starts when the key PREFIX:go is there, and prints what it offered, what was admitted, and when, as JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

LIMIT_TOKENS = 20


def shift_clocks(seconds: float) -> None:
    """Every clock of this process that Python shows. To be called before anything else is imported."""

    def shifted(name: str, by: float) -> None:
        true = getattr(time, name)
        setattr(time, name, lambda: true() + by)

    for name in ("time", "monotonic"):
        shifted(name, seconds)
        shifted(f"{name}_ns", int(seconds * 1e9))


async def offer(plan: dict[str, Any]) -> dict[str, Any]:
    from deploy.limiting import _redis
    from gateway.limit_fallback import FallbackBuckets
    from gateway.limit_redis import RedisBuckets
    from gateway.limiter import TierLimiter
    from services.common.account_messages import Principal
    from services.common.errors import RateLimited
    from services.common.usage_messages import Ask, Limits, Settlement, Tier

    limits = Limits(requests_per_minute=plan["limit"], tokens_per_minute=plan["limit"] * LIMIT_TOKENS)
    tier = Tier(name="free", limits={"chat": {"organisation": limits}})

    class Tiers:
        def tier(self, name: str) -> Tier:
            return tier

        def all(self) -> dict[str, Tier]:
            return {"free": tier}

    async def spent(tenant: str, since: float) -> int:
        return 0

    client = _redis(plan["url"])
    limiter = TierLimiter(Tiers(), FallbackBuckets(RedisBuckets(client, plan["prefix"]), plan["processes"]), spent)
    await client.ping()
    print("ready", flush=True)
    while not await client.exists(f"{plan['prefix']}:go"):  # noqa: ASYNC110 another process sets it
        await asyncio.sleep(0.02)
    began = time.clock_gettime(time.CLOCK_MONOTONIC)
    counts = {"offered": 0, "admitted": 0, "used": 0}
    workers, ask = 8, Ask(principal=Principal(tenant="org", key_id="key"), tokens=LIMIT_TOKENS)

    async def work(number: int) -> None:
        begun, turn = time.monotonic(), float(number)
        while (due := turn / plan["pace"]) < plan["seconds"]:
            await asyncio.sleep(begun + due - time.monotonic())
            turn += workers
            counts["offered"] += 1
            try:
                held = await limiter.reserve(ask)
            except RateLimited:
                continue
            counts["admitted"] += 1
            counts["used"] += LIMIT_TOKENS // 2
            await limiter.settle(Settlement(id=held.id, tenant=held.tenant, tokens=LIMIT_TOKENS // 2))

    await asyncio.gather(*(work(n) for n in range(workers)))
    ended = time.clock_gettime(time.CLOCK_MONOTONIC)
    await client.aclose()
    return counts | {"began": began, "ended": ended}


def main() -> None:
    plan = json.loads(sys.argv[1])
    shift_clocks(plan.get("shift", 0))
    print(json.dumps(asyncio.run(offer(plan))), flush=True)


if __name__ == "__main__":
    main()
