"""Four gateways on one Redis, the clocks of two of them five minutes wrong."""

from benchmarks.limits import run_processes
from tests.support.redis import redis_prefix, redis_url

__all__ = ["redis_prefix", "redis_url"]


def test_four_processes_keep_to_one_limit_whatever_their_clocks_say(redis_url: str, redis_prefix: str) -> None:
    """Five seconds at five times what may pass in them."""
    limit, seconds = 600, 5
    plan = {
        "url": redis_url, "prefix": redis_prefix, "processes": 4, "limit": limit, "seconds": seconds,
        "pace": 5 * (limit / seconds + limit / 60) / 4,
    }  # fmt: skip
    counts = run_processes([plan | {"shift": shift} for shift in (0, 0, 300, -300)])
    elapsed = max(c["ended"] for c in counts) - min(c["began"] for c in counts)
    allowed = limit / 60 * elapsed + limit
    admitted = [c["admitted"] for c in counts]
    assert allowed / 2 < sum(admitted) <= allowed
    assert all(n > 0 for n in admitted)
    assert sum(c["used"] for c in counts) == 10 * sum(admitted)
