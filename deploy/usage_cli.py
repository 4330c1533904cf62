"""antiphon usage"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from deploy import accounts_cli as cli
from services.common.usage_messages import BucketSize, UsageQuery, UsageTotal
from services.common.usage_ports import Ledger

DAYS = 30
COUNTED = ("requests", "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "tool_ms", "cost")
COUNTS = ("requests", "prompt", "cached", "output", "reasoning", "tool s")
Start = Annotated[
    float | None,
    typer.Option(parser=cli.moment, metavar="TIME", help="From then on, as 2026-01-31; 30 days if left out."),
]
End = Annotated[
    float | None, typer.Option(parser=cli.moment, metavar="TIME", help="Up to then, without it; now if left out.")
]
FORMATS = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m", "all": "%Y-%m-%d"}


def usage(
    org: cli.Org = cli.LOCAL,
    start: Start = None,
    end: End = None,
    bucket: Annotated[BucketSize, typer.Option(help="What one line sums up.")] = "day",
    as_csv: Annotated[bool, typer.Option("--csv", help="One line of CSV for each generation instead.")] = False,
    as_json: cli.AsJson = False,
    home: cli.Home = None,
) -> None:
    """What an organisation used, by time (UTC) and model, and what it cost."""
    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json exclude each other.")
    query = _query(org, start, end, bucket)

    async def found(opened: cli.Opened) -> tuple[Sequence[UsageTotal], str]:
        await cli.organisation(opened, org)
        currency = cli.currency()
        if as_csv:
            await _write_csv(opened.ledger, query, currency)
            return (), currency
        return await opened.ledger.totals(query), currency

    totals, currency = cli.run(home, found)
    if as_json:
        cli.print_json(_object(total, currency) for total in totals)
    elif not as_csv:
        rows = [(datetime.fromtimestamp(t.start, UTC).strftime(FORMATS[bucket]), t.group["model"], t) for t in totals]
        numbers = [*COUNTS, f"cost in {currency}"]
        table = [(at, model, *_numbers([total])) for at, model, total in rows] + [("all", "", *_numbers(totals))]
        cli.print_table((f"{bucket} from" if bucket == "all" else bucket, "model", *numbers), table, right=numbers)


def _query(org: str, start: float | None, end: float | None, bucket: BucketSize) -> UsageQuery:
    end = time.time() + 1 if end is None else end
    start = end - DAYS * 86400.0 if start is None else start
    if start >= end:
        raise typer.BadParameter("--start must come before --end.")
    return UsageQuery(tenant=org, start=start, end=end, bucket=bucket, group_by=("model",))


async def _write_csv(ledger: Ledger, query: UsageQuery, currency: str) -> None:
    from gateway.usage_csv import lines

    out = typer.get_binary_stream("stdout")
    async for piece in lines(ledger, query, await ledger.records(query), currency):
        out.write(piece)
    out.flush()


def _object(total: UsageTotal, currency: str) -> dict[str, Any]:
    """As /v1/usage has it."""
    from gateway.routes.shapes import usage_bucket

    return usage_bucket(total) | {"currency": currency}


def _numbers(totals: Sequence[UsageTotal]) -> list[str]:
    sums = [sum(getattr(total, name) for total in totals) for name in COUNTED]
    return [*(f"{n:,}" for n in sums[:-2]), f"{sums[-2] / 1000:,.1f}", cli.money(sums[-1])]
