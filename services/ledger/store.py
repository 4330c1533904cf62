"""The table of usage records, and every query on it. SQLite and PostgreSQL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Index,
    MetaData,
    Row,
    Select,
    Table,
    Text,
    cast,
    func,
    literal,
    select,
    tuple_,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from services.common import usage_messages as u
from services.common.sql import reading, writing

MIGRATIONS = Path(__file__).parent / "migrations"
ROWS_AT_ONCE = 500
SECONDS = {"hour": 3600, "day": 86400}
SUMS = ("prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "tool_ms", "cost")

metadata = MetaData()

usage = Table(
    "usage_records",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("tool_ms", BigInteger, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("cost", BigInteger, nullable=False),
    # With the cost, so that what a tenant has spent is read from the index alone.
    Index("usage_of_tenant", "tenant", "at", "id", "cost"),
)

_FILTERS = ("model", "key_id", "user_id", "project")


class LedgerStore:
    """Rows are added and read; triggers refuse to change or delete one."""

    def __init__(self, engine: AsyncEngine):
        self._engine = engine
        self._sqlite = engine.dialect.name == "sqlite"

    async def add(self, records: Sequence[u.UsageRecord]) -> None:
        """In one transaction. A record whose id is known is left out."""
        insert = (sqlite if self._sqlite else postgresql).insert(usage).on_conflict_do_nothing()
        # In one order, so that two writers of the same records wait for each other and never in a circle.
        rows = [msgspec.structs.asdict(record) for record in sorted(records, key=lambda record: record.id)]
        async with writing(self._engine) as db:
            for start in range(0, len(rows), ROWS_AT_ONCE):
                await db.execute(insert, rows[start : start + ROWS_AT_ONCE])

    async def spent(self, query: u.UsageQuery) -> int:
        async with reading(self._engine) as db:
            return int((await db.execute(spent_query(query))).scalar_one() or 0)

    async def totals(self, query: u.UsageQuery) -> Sequence[u.UsageTotal]:
        groups = tuple(dict.fromkeys(query.group_by))
        by: list[Any] = [usage.c[name] for name in groups]
        if query.bucket != "all":
            by.append(self._start_of(query.bucket).label("start"))
        sums = [func.sum(usage.c[name]).label(name) for name in SUMS]
        chosen = _matching(query, select(*by, func.count().label("requests"), *sums)).group_by(*by)
        async with reading(self._engine) as db:
            rows = (await db.execute(chosen)).all()
        # Sorted here, because databases order texts by their own locale.
        return sorted(
            (_total(row, groups, query.start) for row in rows if row.requests),
            key=lambda total: (total.start, tuple(total.group.values())),
        )

    async def records(self, query: u.UsageQuery, after: float | None) -> u.RecordPage:
        """`after` is the time of the record that `query.after` names."""
        chosen = _matching(query, select(usage)).order_by(usage.c.at, usage.c.id).limit(query.limit + 1)
        if after is not None:
            place = tuple_(literal(after, Double), literal(query.after, Text))
            chosen = chosen.where(tuple_(usage.c.at, usage.c.id) > place)
        async with reading(self._engine) as db:
            rows = (await db.execute(chosen)).all()
        items = tuple(u.UsageRecord(**row._mapping) for row in rows[: query.limit])
        return u.RecordPage(items, len(rows) > query.limit)

    async def time_of(self, tenant: str, id: str) -> float | None:
        chosen = select(usage.c.at).where(usage.c.id == id, usage.c.tenant == tenant)
        async with reading(self._engine) as db:
            at: float | None = (await db.execute(chosen)).scalar_one_or_none()
        return at

    def _start_of(self, bucket: str) -> ColumnElement[int]:
        """Of the hour, day or month (UTC) in which a record is, in seconds since the epoch."""
        # Whole seconds first: SQLite rounds times to milliseconds, which may lead into the next month.
        whole = usage.c.at if self._sqlite else func.floor(usage.c.at)
        seconds = cast(whole, BigInteger)
        if bucket in SECONDS:
            return seconds - seconds % SECONDS[bucket]
        if self._sqlite:
            return cast(func.strftime("%s", seconds, "unixepoch", "start of month"), BigInteger)
        month = func.date_trunc("month", func.to_timestamp(seconds), "UTC")
        return cast(func.extract("epoch", month), BigInteger)


def spent_query(query: u.UsageQuery) -> Select[Any]:
    return _matching(query, select(func.sum(usage.c.cost)))


def _matching(query: u.UsageQuery, chosen: Select[Any]) -> Select[Any]:
    chosen = chosen.where(usage.c.tenant == query.tenant, usage.c.at >= query.start, usage.c.at < query.end)
    for name in _FILTERS:
        wanted = getattr(query, name)
        if wanted is not None:
            chosen = chosen.where(usage.c[name] == wanted)
    return chosen


def _total(row: Row[Any], groups: Sequence[str], start: float) -> u.UsageTotal:
    values = row._mapping
    return u.UsageTotal(
        start=float(values.get("start", start)),
        group={name: values[name] for name in groups},
        requests=row.requests,
        **{name: int(values[name]) for name in SUMS},
    )
