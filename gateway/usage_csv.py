"""Usage records as CSV (RFC 4180), a page at a time."""

import csv
import io
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime

import msgspec

from services.common.usage_messages import RecordPage, UsageQuery, UsageRecord
from services.common.usage_ports import Ledger

COLUMNS = (
    "id", "at", "kind", "model", "user_id", "key_id", "project", "outcome", "prompt_tokens", "cached_tokens",
    "output_tokens", "reasoning_tokens", "tool_ms", "cost",
)  # fmt: skip
HEADER = (*COLUMNS, "currency")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


async def lines(ledger: Ledger, query: UsageQuery, page: RecordPage, currency: str) -> AsyncGenerator[bytes, None]:
    """The header, `page`, and all that comes after it."""
    yield _written([HEADER])
    while True:
        yield _written([_row(record, currency) for record in page.items])
        if not page.more or not page.items:
            return
        query = msgspec.structs.replace(query, after=page.items[-1].id)
        page = await ledger.records(query)


def _row(record: UsageRecord, currency: str) -> Sequence[str | int]:
    at = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="milliseconds")
    values = (at if name == "at" else getattr(record, name) for name in COLUMNS)
    return [_harmless(value) for value in (*values, currency)]


def _harmless(value: str | int) -> str | int:
    """A spreadsheet would run a text that looks like a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _written(rows: Sequence[Sequence[str | int]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()
