"""Whoever signs up with somebody else's e-mail address has nothing of what its owner gets later, wherever `SignIn` runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from services.accounts.roles import OidcMapping
from services.common import account_messages as a
from services.common.errors import Forbidden, InvalidApiKey, NotFound, NotSignedIn
from tests.support.sign_in import ACME, GOOD, OTHER, House, house_at

CEO = "ceo@acme.example"


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with house_at(place, database_url) as house:
        await house.owner()
        yield house


async def ceo_comes(house: House, **fields: Any) -> a.NewSession:
    """The one whom the provider vouches for."""
    whose: dict[str, Any] = {"issuer": "https://id.example", "subject": "ceo", "email": CEO, "email_verified": True}
    return await house.ports.sign_in.with_identity(a.ExternalIdentity(**(whose | {"groups": ("chiefs",)} | fields)))


async def key_of(house: House, session: a.NewSession) -> a.ApiKey:
    return await house.ports.keys.create_key(
        a.NewKey(tenant=ACME, owner=session.user_id, actor=session.user_id, scopes=(*a.USER_SCOPES, "admin"))
    )


async def refused(what: Awaitable[object], error: type[Exception]) -> None:
    with pytest.raises(error):
        await what


async def test_what_an_imposter_made_ends_when_the_owner_of_the_address_comes(house: House) -> None:
    evil = await house.newcomer(CEO, "admin")
    key = await key_of(house, evil)
    tokens = [await house.ports.sessions.open(each) for each in (evil, a.NewSession(tenant=ACME, key_id=key.id))]
    invite = await house.ports.invites.create_invite(a.NewInvite(tenant=ACME, role="admin", actor=evil.user_id))
    before = await house.ports.members.member(a.Ref(ACME, evil.user_id))
    ceo = await ceo_comes(house, name="The CEO")
    assert await house.role(ceo) == "owner"
    for token in tokens:
        await refused(house.ports.sessions.resolve(token), NotSignedIn if token == tokens[0] else InvalidApiKey)
    await refused(house.ports.keys.authenticate(str(key.secret)), InvalidApiKey)
    await refused(house.ports.sign_in.with_password(a.PasswordSignIn(email=CEO, password=GOOD)), NotSignedIn)
    await refused(house.register("evil@acme.example", invite), NotFound)
    after = await house.ports.members.member(a.Ref(ACME, ceo.user_id))
    assert (after.email, after.name, after.has_password) == (CEO, "The CEO", False)
    assert after.space not in ("", before.space)
    assert [member.email for member in await house.ports.members.members(ACME)].count(CEO) == 1
    assert [each.revoked for each in await house.ports.keys.keys(a.KeyQuery(tenant=ACME, owner=evil.user_id))] == [True]


async def test_a_take_over_is_told(house: House) -> None:
    evil = await house.newcomer(CEO)
    await key_of(house, evil)
    for _ in range(2):
        await house.ports.sessions.open(evil)
    ceo = await ceo_comes(house)
    (entry,) = await house.noted("user.take_over")
    assert (entry.tenant, entry.target, entry.actor) == (ACME, evil.user_id, ceo.user_id)
    assert entry.details == {"sessions": 2, "keys": 1, "password": True}
    assert (await house.noted("user.create"))[-1].target == ceo.user_id
    assert CEO not in str(entry)
    assert (await house.ports.audit.verify()).broken_at is None


async def test_what_the_imposter_has_under_way_comes_to_nothing(house: House) -> None:
    """A process may take an ended session for good for some seconds, and a request that was let in goes on."""
    evil = await house.newcomer(CEO)
    ceo = await ceo_comes(house)
    await refused(key_of(house, evil), NotFound)
    asked = a.NewPassword(tenant=ACME, user_id=evil.user_id, new=OTHER, actor=evil.user_id)
    await refused(house.ports.sign_in.set_password(asked), NotFound)
    await refused(house.ports.sessions.resolve(await house.ports.sessions.open(evil)), NotSignedIn)
    patch = a.MemberPatch(tenant=ACME, id=evil.user_id, name="still me", actor=evil.user_id)
    await refused(house.ports.members.update_member(patch), NotFound)
    assert await ceo_comes(house) == ceo
    assert not (await house.ports.members.member(a.Ref(ACME, ceo.user_id))).has_password


async def maker_of(house: House, who: str) -> str:
    owner = (await house.ports.members.members(ACME))[0].id
    if who == "owner's key":
        request = a.NewKey(tenant=ACME, owner=owner, scopes=("admin",))
        return (await house.ports.keys.create_key(request)).id
    if who in a.ROLES:
        return owner if who == "owner" else (await house.newcomer(f"{who}@acme.example", who)).user_id  # type: ignore[arg-type]
    return who


@pytest.mark.parametrize("who", ["owner", "owner's key", "cli", "system"])
async def test_whom_an_owner_has_invited_at_the_address_keeps_everything(house: House, who: str) -> None:
    asked = a.NewInvite(tenant=ACME, email=CEO.upper(), actor=await maker_of(house, who))
    session = await house.register(CEO, await house.ports.invites.create_invite(asked))
    await stays(house, session)


async def stays(house: House, session: a.NewSession) -> None:
    key, token = await key_of(house, session), await house.ports.sessions.open(session)
    before = await house.ports.members.member(a.Ref(ACME, session.user_id))
    assert await ceo_comes(house) == session
    after = await house.ports.members.member(a.Ref(ACME, session.user_id))
    assert (after.space, after.has_password, after.name) == (before.space, True, before.name)
    assert (await house.ports.keys.authenticate(str(key.secret))).user_id == session.user_id
    assert (await house.ports.sessions.resolve(token)).user_id == session.user_id
    assert await house.ports.sign_in.with_password(a.PasswordSignIn(email=CEO, password=GOOD)) == session
    assert await house.noted("user.take_over") == []


async def test_the_first_user_keeps_everything(place: str, database_url: str) -> None:
    async with house_at(place, database_url) as house:
        await stays(house, await house.owner(email=CEO))


async def test_an_admins_word_is_not_enough(house: House) -> None:
    """Who may make members must not take over an owner's account."""
    asked = a.NewInvite(tenant=ACME, email=CEO, actor=await maker_of(house, "admin"))
    session = await house.register(CEO, await house.ports.invites.create_invite(asked))
    assert (await ceo_comes(house)).user_id != session.user_id
    assert len(await house.noted("user.take_over")) == 1


async def test_it_happens_once(house: House) -> None:
    await house.newcomer(CEO)
    ceo = await ceo_comes(house)
    key = await key_of(house, ceo)
    asked = a.NewPassword(tenant=ACME, user_id=ceo.user_id, new=OTHER, actor=ceo.user_id)
    await house.ports.sign_in.set_password(asked)
    assert await ceo_comes(house, issuer="https://other.example") == await ceo_comes(house) == ceo
    assert (await house.ports.keys.authenticate(str(key.secret))).user_id == ceo.user_id
    await refused(ceo_comes(house, subject="somebody-new"), Forbidden)
    assert len(await house.noted("user.take_over")) == 1


async def test_coming_several_times_at_once_takes_over_once(house: House) -> None:
    await house.newcomer(CEO)
    sessions = await asyncio.gather(*(ceo_comes(house) for _ in range(5)))
    assert len({session.user_id for session in sessions}) == 1
    assert len(await house.noted("user.take_over")) == 1
    assert len(await house.ports.members.members(ACME)) == 2


async def test_the_role_that_was_given_here_goes_with_the_account(place: str, database_url: str) -> None:
    async with house_at(place, database_url, OidcMapping(tenant=ACME, default_role="member")) as house:
        await house.owner()
        await house.newcomer(CEO, "admin")
        assert await house.role(await ceo_comes(house)) == "admin"


async def test_an_only_owner_is_followed_by_one(house: House) -> None:
    first = await house.newcomer(CEO, "owner")
    for member in await house.ports.members.members(ACME):
        if member.id != first.user_id:
            await house.ports.members.remove_member(a.Ref(ACME, member.id))
    ceo = await ceo_comes(house, groups=("staff",))
    assert ceo.user_id != first.user_id
    assert [(member.id, member.role) for member in await house.ports.members.members(ACME)] == [(ceo.user_id, "owner")]


async def test_an_account_of_another_organisation_is_not_touched(house: House) -> None:
    invite = await house.ports.invites.create_invite(a.NewInvite(tenant="b"))
    session = await house.register(CEO, invite)
    token = await house.ports.sessions.open(session)
    await refused(ceo_comes(house), Forbidden)
    assert (await house.ports.sessions.resolve(token)).user_id == session.user_id
