import json

import pytest

from tests.support.command_line import CommandLine


def test_an_organisation_is_made_shown_and_changed(antiphon: CommandLine) -> None:
    acme = antiphon.done("orgs", "create", "Acme", "--tier", "team", "--region", "eu-1")
    for words in (
        ["set-tier", acme, "plus"], ["set-budget", acme, "12.345678"], ["rename", acme, "Acme Ltd"], ["suspend", acme],
    ):  # fmt: skip
        assert antiphon.done("orgs", *words) == ""
    found = json.loads(antiphon.done("orgs", "show", acme, "--json"))
    wanted = {"id": acme, "name": "Acme Ltd", "tier": "plus", "region": "eu-1", "suspended": True, "operator": False}
    assert found.items() >= wanted.items()
    assert (found["monthly_budget"], found["tier_budget"], found["spent"]) == (12_345_678, 20_000_000, 0)
    shown = antiphon.done("orgs", "show", acme)
    assert "12.345678" in shown
    assert "20.00" in shown
    assert antiphon.done("orgs", "list").splitlines()[2].split()[-1] == "suspended"
    told = [action for actor, action in antiphon.deeds(acme) if actor == "cli"]
    assert told == ["organisation.create", "tier.change", *["organisation.update"] * 3]

    antiphon.done("orgs", "resume", acme)
    antiphon.done("orgs", "set-budget", acme, "none")
    [_, found] = antiphon.objects("orgs", "list")
    assert (found["suspended"], found["monthly_budget"]) == (False, None)


def test_the_installations_own_is_there_from_the_start(antiphon: CommandLine) -> None:
    antiphon.done("keys", "create")
    assert [(o["id"], o["operator"]) for o in antiphon.objects("orgs", "list")] == [("local", True)]
    assert json.loads(antiphon.done("orgs", "show", "--json"))["id"] == "local"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["create", "X", "--tier", "nope"], "free, plus, team, enterprise"),
        (["create", ""], "name"),
        (["create", "X", "--region", "a b"], "region"),
        (["show", "nope"], "organisation 'nope'"),
        (["set-tier", "local", "nope"], "free, plus, team, enterprise"),
        (["set-budget", "local", "9999999999"], "micro-units"),
        (["suspend", "nope"], "organisation 'nope'"),
        (["rename", "local", ""], "name"),
    ],
)
def test_what_cannot_be_is_refused_in_words(words: list[str], told: str, antiphon: CommandLine) -> None:
    antiphon.done("keys", "create")
    before = antiphon.objects("orgs", "list")
    assert told in antiphon.refused("orgs", *words)
    assert antiphon.objects("orgs", "list") == before


def test_an_amount_that_is_none_is_a_usage_error(antiphon: CommandLine) -> None:
    assert "six decimals" in antiphon.misunderstood("orgs", "set-budget", "local", "1.0000001")
