"""The usage ledger, kept in SQL. What was recorded is never changed."""

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from services.common import usage_messages as u
from services.common.errors import InvalidRequest, NotFound
from services.common.texts import storable
from services.ledger.store import LedgerStore
from services.ledger.text import storable_record

MAX_PAGE = 10_000
MAX_COUNT = 2**53
"""Of one record; it is exact wherever JSON goes, and leaves room for the sums."""
MAX_TIME = 253_402_300_800.0
"""The year 10000, after which calendars in SQL end."""
_COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "tool_ms", "cost")
_FILTERS = ("tenant", "model", "key_id", "user_id", "project", "after")


class LedgerService:
    def __init__(self, store: LedgerStore):
        self._store = store

    async def record(self, records: Sequence[u.UsageRecord]) -> None:
        """Errors: `InvalidRequest` for one that no ledger can hold; then none of them is recorded."""
        checked = [_checked(record) for record in records]
        if checked:
            await self._store.add(checked)

    async def spent(self, query: u.UsageQuery) -> int:
        return await self._store.spent(_storable(query))

    async def totals(self, query: u.UsageQuery) -> Sequence[u.UsageTotal]:
        return await self._store.totals(_storable(query))

    async def records(self, query: u.UsageQuery) -> u.RecordPage:
        """Errors: `NotFound` for an `after` that the tenant does not have."""
        if not 1 <= query.limit <= MAX_PAGE:
            raise InvalidRequest(f"`limit` must be between 1 and {MAX_PAGE}.", param="limit")
        query = _storable(query)
        after = None
        if query.after is not None:
            after = await self._store.time_of(query.tenant, query.after)
            if after is None:
                raise NotFound("There is no usage record with this id.", param="after")
        return await self._store.records(query, after)


def _checked(record: u.UsageRecord) -> u.UsageRecord:
    for name in ("id", "tenant"):
        if not getattr(record, name):
            raise InvalidRequest(f"A usage record has a `{name}`.", param=name)
    if not 0 <= record.at < MAX_TIME:
        raise InvalidRequest("`at` must be a time in seconds since the epoch.", param="at")
    for name in _COUNTS:
        if not 0 <= getattr(record, name) <= MAX_COUNT:
            raise InvalidRequest(f"`{name}` must be between 0 and {MAX_COUNT}.", param=name)
    return storable_record(record)


def _storable(query: u.UsageQuery) -> u.UsageQuery:
    for name in ("start", "end"):
        if not math.isfinite(getattr(query, name)):
            raise InvalidRequest(f"`{name}` must be a time in seconds since the epoch.", param=name)
    texts: dict[str, Any] = {name: getattr(query, name) for name in _FILTERS}
    return msgspec.structs.replace(query, **{name: storable(text) for name, text in texts.items() if text is not None})
