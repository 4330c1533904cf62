import pytest

from services.accounts.tiers import SHIPPED, TierFile
from tests.support.command_line import CommandLine


def test_the_tiers_are_listed_with_their_numbers(antiphon: CommandLine) -> None:
    shown = antiphon.done("tiers", "list")
    tiers = TierFile().all()
    for tier in tiers.values():
        assert f"{tier.max_output_tokens:,}" in shown
        for subjects in tier.limits.values():
            for limits in subjects.values():
                assert f"{limits.requests_per_minute:,}" in shown
    listed = antiphon.objects("tiers", "list")
    assert [tier["name"] for tier in listed] == list(tiers)
    assert listed[0]["limits"]["chat"]["key"]["tokens_per_minute"] == 40_000
    assert not antiphon.home.exists()


def test_the_file_that_is_set_is_the_one_that_is_listed(antiphon: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    file = antiphon.home.with_name("tiers.toml")
    file.write_text("[solo]\nmonthly_budget = 1_500_000\n")
    monkeypatch.setenv("ANTIPHON_TIERS", str(file))
    assert [tier["name"] for tier in antiphon.objects("tiers", "list")] == ["solo"]
    assert "1.50" in antiphon.done("tiers", "list")
    file.write_text("[solo]\nweight = 0\n")
    assert "solo.weight" in antiphon.refused("tiers", "list")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no tier"),
        ("[free", "not TOML"),
        ("[free]\nwait = 1", "free"),
        ("[free]\nweight = -1", "free.weight"),
        ("[free.limits.chat]\nkey = { requests_per_minute = 0 }", "free.limits.chat.key.requests_per_minute"),
        ("[free.limits.smell]\n", "free.limits.smell"),
    ],
)
def test_a_file_that_cannot_be_used_names_file_tier_and_field(text: str, told: str, antiphon: CommandLine) -> None:
    file = antiphon.home.with_name("mine.toml")
    file.write_text(text)
    refusal = antiphon.refused("tiers", "check", str(file))
    assert refusal.startswith(f"{file}: ")
    assert told in refusal


def test_a_good_file_is_told_to_be_good(antiphon: CommandLine) -> None:
    assert antiphon.done("tiers", "check", str(SHIPPED)) == f"{SHIPPED}: good (free, plus, team, enterprise)"
    missing = antiphon.home / "tiers.toml"
    assert str(missing) in antiphon.refused("tiers", "check", str(missing))
