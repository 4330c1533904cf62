import os
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from services.common import usage_messages as u
from services.common.errors import InvalidRequest
from services.ledger.prices import MAX_PRICE, SHIPPED, Price, PriceTable, cost
from services.ledger.service import MAX_COUNT
from tests.support.ledger import used

COUNTS = ("prompt_tokens", "cached_tokens", "output_tokens", "tool_ms")
numbers = st.integers(0, MAX_COUNT) | st.integers(0, 10_000)
rates = st.integers(0, MAX_PRICE) | st.integers(0, 3)
prices = st.builds(Price, prompt=rates, cached=st.none() | rates, output=rates, tool_second=rates)
records = st.builds(used, st.just("a"), **dict.fromkeys((*COUNTS, "reasoning_tokens"), numbers))


@given(record=records, price=prices)
def test_a_cost_is_the_exact_sum_rounded_up_once(record: u.UsageRecord, price: Price) -> None:
    cached = min(record.cached_tokens, record.prompt_tokens)
    exact = (
        Fraction(record.prompt_tokens - cached) * price.prompt / 10**6
        + Fraction(cached) * (price.prompt if price.cached is None else price.cached) / 10**6
        + Fraction(record.output_tokens) * price.output / 10**6
        + Fraction(record.tool_ms, 1000) * price.tool_second
    )
    assert cost(record, price) == ceil(exact)


@given(record=records, price=prices, name=st.sampled_from(("prompt_tokens", "output_tokens", "tool_ms")), more=numbers)
def test_more_use_never_costs_less(record: u.UsageRecord, price: Price, name: str, more: int) -> None:
    larger = msgspec.structs.replace(record, **{name: getattr(record, name) + more})
    if price.cached is None or price.cached >= price.prompt or record.prompt_tokens >= record.cached_tokens:
        assert cost(larger, price) >= cost(record, price)


@given(one=records, two=records, price=prices)
def test_two_together_cost_what_each_does_within_one_unit(one: u.UsageRecord, two: u.UsageRecord, price: Price) -> None:
    one, two = (
        msgspec.structs.replace(each, cached_tokens=min(each.cached_tokens, each.prompt_tokens)) for each in (one, two)
    )
    both = msgspec.structs.replace(one, **{name: getattr(one, name) + getattr(two, name) for name in COUNTS})
    assert 0 <= cost(one, price) + cost(two, price) - cost(both, price) <= 1


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"prompt_tokens": 1_000_000}, 2_500_000),
        ({"prompt_tokens": 1}, 3),
        ({"prompt_tokens": 1, "output_tokens": 1}, 13),
        ({"prompt_tokens": 1_000, "cached_tokens": 400}, 2_000),
        ({"prompt_tokens": 400, "cached_tokens": 1_000}, 500),
        ({"output_tokens": 10, "reasoning_tokens": 5}, 100),
        ({"tool_ms": 1}, 1),
        ({"tool_ms": 1_500}, 150),
        ({}, 0),
    ],
)
def test_examples(fields: dict[str, Any], expected: int) -> None:
    price = Price(prompt=2_500_000, cached=1_250_000, output=10_000_000, tool_second=100)
    assert cost(used("a", **fields), price) == expected


TABLE = """
currency = "EUR"
[prices.chat."*"]
output = 1
[prices.chat."llama-*"]
output = 2
[prices.chat."llama-*-large"]
output = 3
[prices.chat."llama-3.1-large"]
output = 4
[prices.chat."*a*b*c*d*e*f*g*h*i*j*large"]
output = 5
[prices.embedding.m]
prompt = 6
"""


def table(tmp_path: Path, text: str) -> PriceTable:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    return PriceTable(path)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("other", 1), ("", 1), ("Llama-x", 1), ("llama-x", 2), ("llama-", 2), ("llama-x-large", 3),
        ("llama-3.1-large", 4), ("llama-3x1-large", 3), ("abcdefghijlarge", 5), ("llama-\n-large", 3),
    ],
)  # fmt: skip
def test_the_most_specific_name_counts(tmp_path: Path, model: str, expected: int) -> None:
    prices = table(tmp_path, TABLE)
    for _ in range(2):
        assert prices.cost(used("a", model=model, output_tokens=10**6)) == expected


def test_a_class_has_its_own_prices_and_what_has_none_is_free(tmp_path: Path) -> None:
    prices = table(tmp_path, TABLE)
    million = {"prompt_tokens": 10**6, "output_tokens": 10**6}
    assert prices.currency == "EUR"
    assert prices.cost(used("a", kind="embedding", **million)) == 6
    assert prices.cost(used("a", kind="embedding", model="other", **million)) == 0
    assert prices.cost(used("a", kind="image", **million)) == 0


def test_the_shipped_table_is_in_dollars_and_all_is_free() -> None:
    prices = PriceTable()
    assert prices.currency == "USD"
    for kind in ("chat", "embedding"):
        assert prices.cost(used("a", kind=kind, **dict.fromkeys(COUNTS, 10**9))) == 0
    assert "[prices.CLASS" in SHIPPED.read_text()


BAD = [
    ("currency = ", "not TOML"),
    ("currency = 'usd'", "currency"),
    ("currency = 5", "currency"),
    ("price = {}", "price: unknown"),
    ("prices = 5", "prices: must be a table"),
    ("[prices.chats.m]", "prices.chats"),
    ("[prices]\nchat = 1", "prices.chat"),
    ("[prices.chat]\nm = 5", 'prices.chat."m"'),
    ("[prices.chat.m]\nprompts = 5", "prompts"),
    ("[prices.chat.m]\nprompt = -1", 'prices.chat."m".prompt'),
    ("[prices.chat.m]\noutput = 1.5", "$.output"),
    ("[prices.chat.m]\noutput = true", "$.output"),
    ("[prices.chat.m]\noutput = '5'", "$.output"),
    ("[prices.chat.m]\ncached = 1_000_000_000_001", 'prices.chat."m".cached'),
]


@pytest.mark.parametrize(("text", "named"), BAD)
def test_a_bad_table_is_refused_with_its_file_key_and_reason(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        table(tmp_path, text)
    assert str(tmp_path / "prices.toml") in failure.value.message
    assert named in failure.value.message


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "prices.toml"
    if content:
        path.write_bytes(content)
    with pytest.raises(InvalidRequest, match=r"prices\.toml"):
        PriceTable(path)


def test_a_changed_table_counts_within_a_second_and_a_bad_one_does_not(tmp_path: Path) -> None:
    path, now = tmp_path / "prices.toml", 0.0
    path.write_text('[prices.chat."*"]\noutput = 1')
    prices = PriceTable(path, lambda: now)
    million = used("a", output_tokens=10**6)
    path.write_text('[prices.chat."*"]\noutput = 22')
    assert prices.cost(million) == 1
    now = 1.0
    assert prices.cost(million) == 22
    with capture_logs() as logs:
        path.write_text('[prices.chat."*"]\noutput = -333')
        for later in (2.0, 3.0, 4.0):
            now = later
            assert prices.cost(million) == 22
        path.unlink()
        for later in (5.0, 6.0):
            now = later
            assert prices.cost(million) == 22
    assert [line["log_level"] for line in logs] == ["warning", "warning"]
    assert 'prices.chat."*".output' in logs[0]["reason"]
    assert str(path) in logs[1]["reason"]
    path.write_text('[prices.chat."*"]\noutput = 4444')
    now = 7.0
    assert prices.cost(million) == 4444


def test_a_file_that_replaces_another_is_seen_even_if_it_is_as_old_and_as_long(tmp_path: Path) -> None:
    path, now = tmp_path / "prices.toml", 0.0
    path.write_text('[prices.chat."*"]\noutput = 1')
    prices = PriceTable(path, lambda: now)
    other = tmp_path / "other"
    other.write_text('[prices.chat."*"]\noutput = 2')
    found = path.stat()
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    other.replace(path)
    now = 1.0
    assert prices.cost(used("a", output_tokens=10**6)) == 2
