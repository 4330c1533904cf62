"""What `Sessions` promises, wherever it runs."""

import logging
import re
from collections.abc import AsyncIterator

import msgspec
import pytest

from services.accounts.sessions import SESSION_S
from services.common import account_messages as a
from services.common.errors import NotSignedIn
from tests.support.sign_in import ACME, PEPPER, House, house_at

ALL = (*a.USER_SCOPES, "admin", "operator")


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with house_at(place, database_url) as house:
        yield house


async def refused(house: House, token: str) -> None:
    with pytest.raises(NotSignedIn):
        await house.ports.sessions.resolve(token)


async def key_of(house: House, **fields: object) -> a.ApiKey:
    return await house.ports.keys.create_key(msgspec.convert({"tenant": ACME} | fields, a.NewKey))


async def test_a_session_lasts_until_it_is_closed(house: House) -> None:
    session = await house.owner()
    token, other = await house.ports.sessions.open(session), await house.ports.sessions.open(session)
    assert re.fullmatch(r"ses-[A-Za-z0-9_-]{43}", token)
    assert token != other
    who = await house.ports.sessions.resolve(token)
    assert who == a.Principal(
        tenant=ACME, user_id=session.user_id, space=ACME, role="owner", scopes=ALL, tier="team", region="eu"
    )  # fmt: skip
    await house.ports.sessions.close(token)
    await refused(house, token)
    assert await house.ports.sessions.resolve(other) == who
    await house.ports.sessions.close(token)


async def test_the_owner_of_the_machine_needs_no_account(house: House) -> None:
    token = await house.ports.sessions.open(a.NewSession(tenant=ACME))
    assert await house.ports.sessions.resolve(token) == a.Principal(
        tenant=ACME, space=ACME, role="owner", scopes=ALL, tier="team", region="eu"
    )


@pytest.mark.parametrize(
    ("role", "scopes"), [("member", a.USER_SCOPES), ("admin", (*a.USER_SCOPES, "admin")), ("owner", ALL)]
)
async def test_scopes_are_those_of_the_role(house: House, role: a.Role, scopes: tuple[a.Scope, ...]) -> None:
    await house.owner()
    session = await house.newcomer("new@acme.example", role)
    who = await house.ports.sessions.resolve(await house.ports.sessions.open(session))
    assert (who.role, who.scopes, who.space) == (role, scopes, f"{ACME}/{session.user_id}")


async def test_owners_of_other_organisations_do_not_operate_the_installation(house: House) -> None:
    token = await house.ports.sessions.open(a.NewSession(tenant="b"))
    assert (await house.ports.sessions.resolve(token)).scopes == (*a.USER_SCOPES, "admin")


async def test_a_changed_role_counts_at_once(house: House) -> None:
    await house.owner()
    session = await house.newcomer("new@acme.example", "admin")
    token = await house.ports.sessions.open(session)
    await house.ports.members.update_member(a.MemberPatch(tenant=ACME, id=session.user_id, role="member"))
    assert (await house.ports.sessions.resolve(token)).scopes == a.USER_SCOPES


async def test_the_session_of_a_key_has_the_rights_of_the_key(house: House) -> None:
    owner = await house.owner()
    key = await key_of(house, owner=owner.user_id, scopes=("model.request", "admin"), models=("small",))
    token = await house.ports.sessions.open(a.NewSession(tenant=ACME, user_id=owner.user_id, key_id=key.id))
    who = await house.ports.sessions.resolve(token)
    assert who == await house.ports.keys.authenticate(str(key.secret))
    assert (who.scopes, who.models, who.role, who.space) == (("model.request", "admin"), ("small",), "owner", ACME)


async def test_a_session_ends_with_its_key(house: House) -> None:
    revoked, expiring = await key_of(house), await key_of(house, expires=house.clock.now + 60)
    tokens = [
        await house.ports.sessions.open(a.NewSession(tenant=ACME, key_id=key.id)) for key in (revoked, expiring)
    ]  # fmt: skip
    for token in tokens:
        await house.ports.sessions.resolve(token)
    await house.ports.keys.revoke_key(a.Ref(ACME, revoked.id))
    await refused(house, tokens[0])
    await house.ports.sessions.resolve(tokens[1])
    house.clock.now += 61
    await refused(house, tokens[1])


async def test_anothers_key_opens_nothing(house: House) -> None:
    key = await key_of(house)
    await refused(house, await house.ports.sessions.open(a.NewSession(tenant="b", key_id=key.id)))


async def test_a_session_ends_with_its_user(house: House) -> None:
    await house.owner()
    session = await house.newcomer("new@acme.example")
    key = await key_of(house, owner=session.user_id)
    tokens = [
        await house.ports.sessions.open(opened)
        for opened in (session, a.NewSession(tenant=ACME, key_id=key.id), a.NewSession(tenant="b", user_id=session.user_id))
    ]  # fmt: skip
    await refused(house, tokens.pop())
    for token in tokens:
        await house.ports.sessions.resolve(token)
    await house.ports.members.remove_member(a.Ref(ACME, session.user_id))
    for token in tokens:
        await refused(house, token)
    await refused(house, await house.ports.sessions.open(session))


async def test_a_session_rests_while_its_organisation_is_suspended(house: House) -> None:
    session, key = await house.owner(), await key_of(house)
    opened = (session, a.NewSession(tenant=ACME, key_id=key.id), a.NewSession(tenant=ACME))
    tokens = [await house.ports.sessions.open(one) for one in opened]
    await house.ports.organisations.update_organisation(a.OrganisationPatch(id=ACME, suspended=True))
    for token in tokens:
        await refused(house, token)
    await house.ports.organisations.update_organisation(a.OrganisationPatch(id=ACME, suspended=False))
    for token in tokens:
        await house.ports.sessions.resolve(token)


async def test_a_session_of_no_organisation_is_refused(house: House) -> None:
    await refused(house, await house.ports.sessions.open(a.NewSession(tenant="nowhere")))


async def test_a_session_expires_and_is_forgotten(house: House) -> None:
    token = await house.ports.sessions.open(a.NewSession(tenant=ACME))
    house.clock.now += SESSION_S - 10
    await house.ports.sessions.resolve(token)
    house.clock.now += 10
    await refused(house, token)
    await house.ports.sessions.open(a.NewSession(tenant=ACME))
    assert await house.count("sessions") == 1


async def test_signing_out_everywhere_ends_every_session_of_that_user_only(house: House) -> None:
    owner = await house.owner()
    user = await house.newcomer("new@acme.example")
    keys = [await key_of(house, owner=session.user_id) for session in (user, owner)]
    theirs = (user, user, a.NewSession(tenant=ACME, key_id=keys[0].id))
    others = (owner, a.NewSession(tenant=ACME, key_id=keys[1].id), a.NewSession(tenant=ACME), a.NewSession(tenant="b"))
    ended = [await house.ports.sessions.open(session) for session in theirs]
    kept = [await house.ports.sessions.open(session) for session in others]
    await house.ports.sessions.close_all(a.Ref("b", user.user_id, owner.user_id))
    await house.ports.sessions.resolve(ended[0])
    await house.ports.sessions.close_all(a.Ref(ACME, user.user_id, owner.user_id))
    for token in ended:
        await refused(house, token)
    for token in kept:
        await house.ports.sessions.resolve(token)
    entry = (await house.noted("session.close_all"))[-1]
    assert (entry.tenant, entry.actor, entry.target) == (ACME, owner.user_id, user.user_id)


async def test_signing_the_owner_of_the_machine_out_spares_people(house: House) -> None:
    owner = await house.owner()
    key = await key_of(house)
    machines = (a.NewSession(tenant=ACME), a.NewSession(tenant=ACME, key_id=key.id))
    ended = [await house.ports.sessions.open(session) for session in machines]
    kept = await house.ports.sessions.open(owner)
    await house.ports.sessions.close_all(a.Ref(ACME, ""))
    for token in ended:
        await refused(house, token)
    await house.ports.sessions.resolve(kept)


MALFORMED = ["", "ses-", "Bearer x", "ses-" + "é" * 43, "ses-" + "a" * 42, "ses-" + "a" * 44, "ses-" + "a" * 43 + "\n"]


async def test_what_is_no_session_is_refused(house: House) -> None:
    for token in (*MALFORMED, "\x00", "ses-" + "a" * 43, "sk-" + "a" * 43, "x" * 1_000_000):
        await refused(house, token)
        await house.ports.sessions.close(token)


async def test_a_key_is_no_session_and_a_session_no_key(house: House) -> None:
    key = await key_of(house)
    await refused(house, str(key.secret))
    await refused(house, "ses-" + str(key.secret)[3:])


async def test_names_that_cannot_be_stored_are_nobodys(house: House) -> None:
    await house.ports.sessions.close_all(a.Ref("\x00", "user_\x00"))


async def test_a_token_is_kept_nowhere(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    session = await house.owner()
    token = await house.ports.sessions.open(session)
    await house.ports.sessions.resolve(token)
    await house.ports.sessions.close_all(a.Ref(ACME, session.user_id))
    kept = await house.ports.sessions.open(session)
    with pytest.raises(NotSignedIn) as failure:
        await house.ports.sessions.resolve(token)
    seen = await house.stored() + caplog.text + repr(failure.value) + repr(vars(house.ports.sessions))
    for secret in (token[4:], kept[4:], token[4:24], kept[4:24], PEPPER.decode()):
        assert secret not in seen
