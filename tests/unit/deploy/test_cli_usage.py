import csv
import time
from typing import Any

import pytest

from deploy.installation import Installation
from services.common.usage_messages import UsageRecord
from services.ledger.service import LedgerService
from services.ledger.store import LedgerStore
from tests.support.command_line import CommandLine

JANUARY = 1_767_225_600.0
"""2026-01-01, UTC."""
DAY_S = 86400.0
PERIOD = ("--start", "2026-01-01", "--end", "2026-02-01")


def used(id: str, at: float, **fields: Any) -> UsageRecord:
    counts = {"prompt_tokens": 1000, "cached_tokens": 100, "output_tokens": 10, "cost": 1_500_000}
    return UsageRecord(id=id, at=at, **({"tenant": "local", "model": "small"} | counts | fields))


@pytest.fixture
def recorded(antiphon: CommandLine) -> CommandLine:
    records = [
        used("a", JANUARY),
        used("b", JANUARY + DAY_S - 0.001, outcome="cancelled"),
        used("c", JANUARY + 1, model="=large"),
        used("d", JANUARY + DAY_S, cost=1),
        used("e", JANUARY + 31 * DAY_S),
        used("f", JANUARY, tenant="other"),
    ]

    async def record(installation: Installation) -> None:
        await LedgerService(LedgerStore(installation.database)).record(records)

    antiphon.inside(record)
    return antiphon


def test_usage_is_summed_by_day_and_model(recorded: CommandLine) -> None:
    rows = [line.split() for line in recorded.done("usage", *PERIOD).splitlines()[1:]]
    assert rows == [
        ["2026-01-01", "=large", "1", "1,000", "100", "10", "0", "0.0", "1.50"],
        ["2026-01-01", "small", "2", "2,000", "200", "20", "0", "0.0", "3.00"],
        ["2026-01-02", "small", "1", "1,000", "100", "10", "0", "0.0", "0.000001"],
        ["all", "4", "4,000", "400", "40", "0", "0.0", "4.500001"],
    ]


def test_programs_get_what_the_api_gives(recorded: CommandLine) -> None:
    [large, small] = recorded.objects("usage", *PERIOD, "--bucket", "month")
    assert (large["group"], small["group"]) == ({"model": "=large"}, {"model": "small"})
    wanted = {"object": "usage.bucket", "start": int(JANUARY), "requests": 3, "cost": 3_000_001, "currency": "USD"}
    assert small.items() >= wanted.items()


def test_records_are_lines_of_csv(recorded: CommandLine) -> None:
    rows = list(csv.DictReader(recorded.done("usage", *PERIOD, "--csv").splitlines()))
    assert [row["id"] for row in rows] == ["a", "c", "b", "d"]
    assert [row["outcome"] for row in rows] == ["finished", "finished", "cancelled", "finished"]
    assert (rows[1]["model"], rows[1]["cost"], rows[1]["currency"]) == ("'=large", "1500000", "USD")


def test_the_last_thirty_days_are_the_default(recorded: CommandLine) -> None:
    async def record(installation: Installation) -> None:
        now = time.time()
        records = [used("new", now - 1), used("old", now - 31 * DAY_S)]
        await LedgerService(LedgerStore(installation.database)).record(records)

    recorded.inside(record)
    assert recorded.done("usage", "--bucket", "all").splitlines()[-1].split()[:2] == ["all", "1"]


def test_another_organisation_has_its_own(recorded: CommandLine) -> None:
    acme = recorded.done("orgs", "create", "Acme")
    assert recorded.objects("usage", *PERIOD, "--org", acme) == []
    assert "organisation 'other'" in recorded.refused("usage", *PERIOD, "--org", "other")


@pytest.mark.parametrize(
    "period", [["--start", "x"], ["--start", "2026-02-01", "--end", "2026-01-01"], ["--end", "nan"]]
)
def test_a_period_that_is_none_is_a_usage_error(period: list[str], antiphon: CommandLine) -> None:
    assert period[0] in antiphon.misunderstood("usage", *period)


def test_two_formats_at_once_are_a_usage_error(antiphon: CommandLine) -> None:
    assert "--csv and --json" in antiphon.misunderstood("usage", "--csv", "--json")
