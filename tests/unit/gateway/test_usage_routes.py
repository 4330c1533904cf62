"""Usage in sums and as CSV: who sees what, of which time, and in a form that harms no spreadsheet."""

import csv
import io
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.usage_csv import HEADER, lines
from gateway.usage_period import moment, month
from services.common import account_messages as a
from services.common.errors import InvalidRequest
from services.common.usage_messages import RecordPage, UsageQuery, UsageRecord
from tests.support.house import House, furnished, house

NOW = time.time()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return furnished(tmp_path_factory.mktemp("house") / "template.db")


@pytest.fixture
async def home(template: Path, tmp_path: Path) -> AsyncIterator[House]:
    async with house(template, tmp_path) as made:
        yield made


def record(number: int, **fields: Any) -> UsageRecord:
    common = {"tenant": "local", "at": NOW - 60, "model": "m", "prompt_tokens": 10, "output_tokens": 5, "cost": 100}
    return UsageRecord(id=f"use_{number:04}", **(common | fields))


async def test_admins_see_all_and_members_their_own(home: House) -> None:
    member, members = await home.person("member")
    owner, owners = await home.person("owner")
    await home.ports.ledger.record([
        record(1, user_id=member.id), record(2, user_id=owner.id, cost=1000), record(3, tenant="other", cost=5),
        record(4, at=NOW - 40 * 86400),
    ])  # fmt: skip
    seen = (await owners.get("/api/usage?bucket=all")).json()
    assert (seen["object"], seen["currency"]) == ("list", "EUR")
    [total] = seen["data"]
    assert {name: total[name] for name in ("object", "group", "requests", "prompt_tokens", "output_tokens", "cost")} == {
        "object": "usage.bucket", "group": {}, "requests": 2, "prompt_tokens": 20, "output_tokens": 10, "cost": 1100,
    }  # fmt: skip
    assert set(total) == {
        "object", "start", "group", "requests", "prompt_tokens", "cached_tokens", "output_tokens", "reasoning_tokens", "tool_ms",
        "cost",
    }  # fmt: skip
    assert isinstance(total["start"], int)
    own = (await members.get("/api/usage?bucket=all")).json()
    assert own["data"][0]["cost"] == 100
    assert own["budget"] == {"limit": None, "spent": 100}
    refused = await members.get(f"/api/usage?user_id={owner.id}")
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "user_id")
    key = await home.ports.keys.create_key(a.NewKey(tenant="local", owner=owner.id))
    of_key = (await home.client(authorization=f"Bearer {key.secret}").get("/v1/usage?bucket=all")).json()
    assert of_key["data"][0]["cost"] == 1000, "a key without the scope `admin` is a member's"
    whole = (await (await home.key(scopes=("usage.read",))).get("/v1/usage?bucket=all")).json()
    assert whole["data"] == seen["data"]


async def test_the_budget_is_the_lower_of_the_organisations_and_the_tiers(home: House) -> None:
    _, owners = await home.person("owner")
    await home.ports.ledger.record([record(1, cost=70, at=max(month(NOW).start, NOW - 60))])
    of_tier = home.ports.tiers.tier("free").monthly_budget
    assert (await owners.get("/api/usage")).json()["budget"] == {"limit": of_tier, "spent": 70}
    for budget, limit in ((5, 5), (of_tier * 10, of_tier), (0, 0)):
        await owners.patch("/api/organization", json={"monthly_budget": budget})
        assert (await owners.get("/api/usage")).json()["budget"]["limit"] == limit
    await home.ports.organisations.update_organisation(
        a.OrganisationPatch(id="local", tier="enterprise", monthly_budget=-1)
    )
    unlimited = home.ports.tiers.tier("enterprise").monthly_budget
    assert (await owners.get("/api/usage")).json()["budget"]["limit"] == unlimited


async def test_sums_are_by_time_and_group_and_filtered(home: House) -> None:
    program = await home.key()
    day = datetime(2026, 3, 4, 10, tzinfo=UTC).timestamp()
    await home.ports.ledger.record([
        record(1, at=day, model="a"), record(2, at=day + 3600, model="b"),
        record(3, at=day + 86400, model="a", outcome="cancelled"),
    ])  # fmt: skip

    async def found(query: str) -> list[dict[str, Any]]:
        answer = await program.get(f"/v1/usage?start=2026-03-01&end=2026-04-01&{query}")
        assert answer.status_code == 200, answer.text
        data: list[dict[str, Any]] = answer.json()["data"]
        return data

    assert [t["requests"] for t in await found("")] == [2, 1]
    assert [t["requests"] for t in await found("bucket=hour")] == [1, 1, 1]
    assert [(t["start"], t["requests"]) for t in await found("bucket=month")] == [(int(moment("2026-03-01", "x")), 3)]
    groups = {(t["group"]["model"], t["group"]["outcome"]) for t in await found("bucket=all&group_by=outcome,model")}
    assert groups == {("a", "finished"), ("b", "finished"), ("a", "cancelled")}
    assert [t["requests"] for t in await found("bucket=all&model=b")] == [1]
    assert await found("key_id=nobody") == []


@pytest.mark.parametrize(
    ("query", "param"),
    [("start=yesterday", "start"), ("end=2026-02-30", "end"), ("start=nan", "start"), ("start=-1", "start"),
     ("end=99999999999999", "end"), ("start=2026-02-01&end=2026-01-01", "start"), ("bucket=week", "bucket"),
     ("bucket=hour&start=2025-01-01&end=2026-01-01", "bucket"), ("group_by=tenant", "group_by"),
     ("group_by=model,worker", "group_by"), ("model=%00", "model"), ("user_id=" + "x" * 300, "user_id"),
     ("start=2026-01-01T25:00", "start"), ("start=0001-01-01T00:00:00%2B23:59", "start")],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/usage", "/v1/usage.csv"])
async def test_what_cannot_be_asked_is_named(home: House, path: str, query: str, param: str) -> None:
    if path.endswith(".csv") and ("bucket" in query or "group_by" in query):
        path = "/v1/usage"
    answer = await (await home.key()).get(f"{path}?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0.0), ("1767225600", 1767225600.0), ("1767225600.5", 1767225600.5), ("2026-01-01", 1767225600.0),
     ("2026-01-01T00:00:00Z", 1767225600.0), ("2026-01-01T01:00", 1767229200.0), ("2026-01-01 01:00", 1767229200.0),
     ("2026-01-01T01:00:00+01:00", 1767225600.0), ("2026-01-01T01:00:00 01:00", 1767225600.0)],
)  # fmt: skip
def test_moments_are_seconds_or_iso(text: str, expected: float) -> None:
    assert moment(text, "start") == expected


@given(st.text(max_size=40) | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ].{0,20}", fullmatch=True))
@settings(deadline=None)
def test_no_text_does_more_than_fail_to_be_a_moment(text: str) -> None:
    with suppress(InvalidRequest):
        assert moment(text, "start") >= 0


async def test_csv_has_a_line_for_each_generation_and_every_page(home: House) -> None:
    member, members = await home.person("member")
    await home.ports.ledger.record([record(n, at=NOW - 5000 + n, user_id=member.id) for n in range(1, 2502)])
    await home.ports.ledger.record([record(9000, user_id="somebody"), record(9001, tenant="other")])
    answer = await members.get("/api/usage.csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="usage.csv"'
    assert answer.text.count("\r\n") == 2502
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert tuple(rows[0]) == HEADER
    assert [row["id"] for row in rows] == [f"use_{n:04}" for n in range(1, 2502)]
    assert datetime.fromisoformat(rows[0]["at"]).timestamp() == pytest.approx(NOW - 4999, abs=0.01)
    assert (rows[0]["cost"], rows[0]["currency"], rows[0]["user_id"]) == ("100", "EUR", member.id)
    everything = (await (await home.key()).get("/v1/usage.csv")).text
    assert everything.count("\r\n") == 2503


async def test_no_usage_is_a_header(home: House) -> None:
    assert (await (await home.key()).get("/v1/usage.csv")).text == ",".join(HEADER) + "\r\n"


class OnePage:
    async def records(self, query: UsageQuery) -> RecordPage:
        raise AssertionError


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
@settings(deadline=None)
async def test_no_text_becomes_a_formula_or_another_cell(text: str) -> None:
    page = RecordPage((record(1, model=text, project=f"={text}"),), more=False)
    query = UsageQuery(tenant="local", start=0, end=1)
    whole = b"".join([part async for part in lines(OnePage(), query, page, "EUR")])  # type: ignore[arg-type]
    [header, row] = csv.reader(io.StringIO(whole.decode(), newline=""))
    cells = dict(zip(header, row, strict=True))
    assert cells["project"] == f"'={text}"
    assert cells["model"] in (text, f"'{text}")
    assert not cells["model"].startswith(("=", "+", "-", "@", "\t", "\r"))
