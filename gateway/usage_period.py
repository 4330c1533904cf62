"""Moments as people and programs write them in a query."""

import re
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from services.common.errors import InvalidRequest

_SECONDS = re.compile(r"[0-9]{1,11}(\.[0-9]{1,6})?")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].+)?")


def moment(text: str, param: str) -> float:
    """Seconds since the epoch. A date is its beginning, and what names no zone is in UTC. Errors: `InvalidRequest`."""
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        if not _ISO.fullmatch(text):
            raise ValueError
        # A + that was not escaped in the query has come as a space.
        found = datetime.fromisoformat(re.sub(r" (?=[0-9]{2}:?[0-9]{2}$)", "+", text) if "T" in text else text)
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
        if seconds < 0:
            raise ValueError
        return seconds
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{param} must be Unix seconds, or an ISO date or time such as 2026-01-31.", param=param
        ) from None


class Month(Struct, frozen=True):
    """start ≤ t < end, UTC."""

    name: str
    start: float
    end: float


def month(now: float) -> Month:
    first = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    after = (first + timedelta(days=32)).replace(day=1)
    return Month(f"{first:%Y-%m}", first.timestamp(), after.timestamp())
