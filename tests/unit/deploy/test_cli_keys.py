import re
import time

import pytest

from deploy.installation import Installation
from services.common.account_messages import USER_SCOPES, Principal
from services.common.errors import InvalidApiKey
from tests.support.command_line import CommandLine


def recognised(antiphon: CommandLine, secret: str) -> Principal:
    async def ask(installation: Installation) -> Principal:
        return await installation.accounts.ports.keys.authenticate(secret)

    return antiphon.inside(ask)


def test_create_prints_the_secret_and_nothing_else(antiphon: CommandLine) -> None:
    secret = antiphon.done("keys", "create", "laptop")
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}", secret)
    who = recognised(antiphon, secret)
    assert (who.tenant, who.user_id, who.scopes, who.models) == ("local", "", USER_SCOPES, ())
    assert secret not in antiphon.done("keys", "list") + antiphon.done("keys", "list", "--json")
    assert antiphon.deeds()[-1] == ("cli", "key.create")


def test_create_takes_all_that_a_key_has(antiphon: CommandLine) -> None:
    ann = antiphon.user("ann@x.org")
    words = "keys create x --owner Ann@X.org --scopes model.read,usage.read --models a,b --expires-in 30d".split()
    who = recognised(antiphon, antiphon.done(*words))
    assert (who.user_id, who.scopes, who.models) == (ann, ("model.read", "usage.read"), ("a", "b"))
    [key] = antiphon.objects("keys", "list")
    assert key["expires"] == pytest.approx(time.time() + 30 * 86400, abs=100)
    assert (key["owner"], key["name"], key["organization"]) == (ann, "x", "local")


def test_a_key_of_another_organisation_is_its_own(antiphon: CommandLine) -> None:
    acme = antiphon.done("orgs", "create", "Acme")
    secret = antiphon.done("keys", "create", "--org", acme)
    assert recognised(antiphon, secret).tenant == acme
    assert antiphon.objects("keys", "list") == []
    [key] = antiphon.objects("keys", "list", "--org", acme)
    assert antiphon.refused("keys", "revoke", key["id"], "--org", "local").startswith("There is no such key.")
    assert antiphon.done("keys", "revoke", key["id"]) == ""
    assert antiphon.deeds(acme)[-1] == ("cli", "key.revoke")


def test_a_revoked_key_is_refused_and_shown_as_such(antiphon: CommandLine) -> None:
    secret = antiphon.done("keys", "create")
    [key] = antiphon.objects("keys", "list")
    assert antiphon.done("keys", "list").splitlines()[1].split()[-1] == "good"
    for _ in range(2):
        assert antiphon.done("keys", "revoke", key["id"]) == ""
    assert antiphon.done("keys", "list").splitlines()[1].split()[-1] == "revoked"
    with pytest.raises(InvalidApiKey):
        recognised(antiphon, secret)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--org", "nope"], "organisation 'nope'"),
        (["--owner", "nope@x.org"], "user 'nope@x.org'"),
        (["--owner", "user_nope"], "user or service account"),
        (["--project", "nope"], "project"),
        (["--scopes", "model.request,all"], "scopes model.request"),
        (["--scopes", ","], "scopes model.request"),
        (["--models", "x" * 300], "model's name"),
        (["x" * 300], "name"),
    ],
)
def test_a_key_that_cannot_be_is_refused_in_words(options: list[str], told: str, antiphon: CommandLine) -> None:
    assert told in antiphon.refused("keys", "create", *options)
    assert antiphon.objects("keys", "list") == []


def test_a_span_that_is_none_is_a_usage_error(antiphon: CommandLine) -> None:
    assert "90m, 12h, 30d or 4w" in antiphon.misunderstood("keys", "create", "--expires-in", "soon")
