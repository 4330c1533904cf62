from itertools import pairwise
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from services.accounts.tiers import SHIPPED, TierFile, TierSettings
from services.common.errors import InvalidRequest
from services.common.usage_messages import Limits, Tier

SMALL = """
[one]
monthly_budget = 5
weight = 0.5
scheduling = "batch"
models = ["llama-*", "m"]
tools = []
max_context = 100
max_output_tokens = 10
[one.limits.chat]
key = { requests_per_minute = 1, tokens_per_minute = 2, tokens_per_day = 3, concurrent_streams = 4 }
[two]
"""


def tiers(tmp_path: Path, text: str) -> TierFile:
    path = tmp_path / "tiers.toml"
    path.write_text(text)
    return TierFile(path)


def test_a_tier_is_what_the_file_says(tmp_path: Path) -> None:
    found = tiers(tmp_path, SMALL)
    limits = Limits(requests_per_minute=1, tokens_per_minute=2, tokens_per_day=3, concurrent_streams=4)
    one = Tier(
        name="one", limits={"chat": {"key": limits}}, monthly_budget=5, weight=0.5, scheduling="batch",
        models=("llama-*", "m"), tools=(), max_context=100, max_output_tokens=10,
    )  # fmt: skip
    assert found.tier("one") == one
    assert dict(found.all()) == {"one": one, "two": Tier(name="two")}


def test_a_tier_that_is_not_there_is_a_bad_request(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as failure:
        tiers(tmp_path, SMALL).tier("three")
    assert failure.value.param == "tier"
    assert "one, two" in failure.value.message


def test_the_shipped_file_has_four_tiers_that_grow() -> None:
    found = TierFile()
    names = ["free", "plus", "team", "enterprise"]
    assert list(found.all()) == names
    for smaller, larger in pairwise(names):
        one, two = found.tier(smaller), found.tier(larger)
        assert one.weight < two.weight
        assert one.max_output_tokens < two.max_output_tokens
        for kind in ("chat", "embedding"):
            for subject in ("organisation", "user", "key"):
                few, many = one.limits[kind][subject], two.limits[kind][subject]
                assert (few.requests_per_minute or 0) < (many.requests_per_minute or 0)
                assert (few.tokens_per_minute or 0) < (many.tokens_per_minute or 0)


def test_a_free_organisation_may_ask_within_its_context_and_an_enterprise_has_no_daily_limit() -> None:
    free, enterprise = TierFile().tier("free"), TierFile().tier("enterprise")
    limits = free.limits["chat"]["key"]
    assert limits == Limits(
        requests_per_minute=20, tokens_per_minute=40_000, tokens_per_day=300_000, concurrent_streams=3
    )
    assert free.max_context == 8192
    assert free.max_output_tokens == 2048
    assert (free.monthly_budget or 0) > 0
    assert enterprise.limits["chat"]["organisation"] == Limits(
        requests_per_minute=600_000, tokens_per_minute=1_000_000_000, concurrent_streams=10_000
    )
    assert (enterprise.max_context, enterprise.monthly_budget, enterprise.max_output_tokens) == (None, None, 32_768)


BAD = [
    ("", "no tier"),
    ("[free", "not TOML"),
    ("free = 5", "free: must be a table"),
    ("[free]\nname = 'x'", "free.name"),
    ("[free]\nmax_tokens = 5", "free: Object contains unknown field `max_tokens`"),
    ("[free]\nmax_context = 0", "free.max_context"),
    ("[free]\nmax_context = 1.5", "$.max_context"),
    ("[free]\nmax_context = true", "$.max_context"),
    ("[free]\nmax_output_tokens = -1", "free.max_output_tokens"),
    ("[free]\nmonthly_budget = 0", "free.monthly_budget"),
    ("[free]\nmonthly_budget = 1_000_000_000_000_001", "free.monthly_budget"),
    ("[free]\nweight = 0.0", "free.weight"),
    ("[free]\nweight = nan", "free.weight"),
    ("[free]\nweight = inf", "free.weight"),
    ("[free]\nscheduling = 'fast'", "$.scheduling"),
    ("[free]\nmodels = '*'", "$.models"),
    ("[free]\nlimits = 5", "free.limits: must be a table"),
    ("[free.limits.chats.key]", "free.limits.chats: unknown"),
    ("[free.limits]\nchat = 5", "free.limits.chat: must be a table"),
    ("[free.limits.chat.team]", "free.limits.chat.team: unknown"),
    ("[free.limits.chat]\nkey = 5", "free.limits.chat.key: Expected `object`"),
    ("[free.limits.chat.key]\nrequests = 5", "free.limits.chat.key: Object contains unknown field `requests`"),
    ("[free.limits.chat.key]\nrequests_per_minute = 0", "free.limits.chat.key.requests_per_minute"),
    ("[free.limits.chat.key]\ntokens_per_day = '5'", "$.tokens_per_day"),
    ("[ok]\n[free.limits.chat.user]\nconcurrent_streams = -3", "free.limits.chat.user.concurrent_streams"),
]


@pytest.mark.parametrize(("text", "named"), BAD)
def test_a_bad_file_is_refused_with_tier_and_field(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as failure:
        tiers(tmp_path, text)
    assert str(tmp_path / "tiers.toml") in failure.value.message
    assert named in failure.value.message


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.toml cannot be read: No such file"):
        TierFile(tmp_path / "none.toml")


def test_a_change_counts_within_a_second_and_a_bad_one_never(tmp_path: Path) -> None:
    path, now = tmp_path / "tiers.toml", 10.0
    path.write_text("[free]\nmax_context = 1")
    found = TierFile(path, lambda: now)
    path.write_text("[free]\nmax_context = 22")
    assert found.tier("free").max_context == 1
    now = 11.0
    assert found.tier("free").max_context == 22
    with capture_logs() as logs:
        path.write_text("[free]\nmax_context = -333")
        for later in (11.5, 12.0, 13.0, 14.0):
            now = later
            assert found.tier("free").max_context == 22
    assert [(line["log_level"], line["file"]) for line in logs] == [("warning", str(path))]
    assert "free.max_context" in logs[0]["reason"]
    path.write_text("[free]\nmax_context = 4444")
    now = 15.0
    assert found.tier("free").max_context == 4444


def test_the_file_is_looked_at_once_a_second_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, now, looks = tmp_path / "tiers.toml", 0.0, []
    path.write_text(SMALL)
    found = TierFile(path, lambda: now)
    monkeypatch.setattr("services.common.reloading._identity", lambda path: looks.append(now))
    for step in range(1_000):
        now = step / 250
        found.all()
    assert looks == [1.0, 2.0, 3.0]


def test_the_setting_names_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TierSettings().tiers is None
    monkeypatch.setenv("ANTIPHON_TIERS", str(SHIPPED))
    assert TierSettings().tiers == SHIPPED
