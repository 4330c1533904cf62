"""What `SignIn` promises to those for whom an identity provider vouches, wherever it runs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.accounts.roles import OidcMapping
from services.common import account_messages as a
from services.common.errors import Forbidden
from tests.support.sign_in import ACME, GOOD, House, house_at

NEW = "new@acme.example"


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with house_at(place, database_url) as house:
        yield house


@pytest.fixture
async def without_groups(place: str, database_url: str) -> AsyncIterator[House]:
    async with house_at(place, database_url, OidcMapping(tenant=ACME, default_role="member")) as house:
        yield house


def identity(**fields: Any) -> a.ExternalIdentity:
    whose = {"issuer": "https://id.example", "subject": "s-1", "email": NEW, "email_verified": True}
    return a.ExternalIdentity(**(whose | fields))


async def come(house: House, **fields: Any) -> a.NewSession:
    return await house.ports.sign_in.with_identity(identity(**fields))


async def refused(house: House, **fields: Any) -> str:
    with pytest.raises(Forbidden) as failure:
        await come(house, **fields)
    return failure.value.message


async def test_the_first_sign_in_makes_the_account(house: House) -> None:
    session = await come(house, email="New@ACME.example", name="Nina\x00 New", groups=("it", "unknown"))
    member = await house.ports.members.member(a.Ref(ACME, session.user_id))
    assert (member.email, member.name, member.role) == (NEW, "Nina New", "admin")
    assert (member.space, member.has_password) == (f"{ACME}/{session.user_id}", False)
    (made,) = await house.noted("user.create")
    (entered,) = await house.noted("signin.oidc")
    for entry in (made, entered):
        assert (entry.tenant, entry.actor, entry.target) == (ACME, session.user_id, session.user_id)
    assert entered.details == {"issuer": "https://id.example"}


async def test_the_pair_of_issuer_and_subject_names_somebody_for_ever(house: House) -> None:
    session = await come(house)
    house.clock.now += 60
    assert await come(house, email="married@acme.example", email_verified=False) == session
    member = await house.ports.members.member(a.Ref(ACME, session.user_id))
    assert (member.email, member.last_seen) == (NEW, house.clock.now)
    assert await come(house, issuer="https://other.example", email="else@acme.example") != session
    assert await come(house, subject="s-2", email="second@acme.example") != session


async def test_a_verified_address_links_to_the_account_that_is_there(house: House) -> None:
    await house.owner()
    session = await house.newcomer(NEW, email_known=True)
    assert await come(house) == session
    assert await come(house, email="later@acme.example") == session
    attempt = a.PasswordSignIn(email=NEW, password=GOOD)
    assert await house.ports.sign_in.with_password(attempt) == session
    assert len(await house.ports.members.members(ACME)) == 2


async def test_an_unverified_address_links_to_nothing_and_makes_nothing(house: House) -> None:
    await house.owner()
    await house.newcomer(NEW)
    for email in (NEW, "unknown@acme.example"):
        assert "verif" in await refused(house, email=email, email_verified=False)
    assert len(await house.ports.members.members(ACME)) == 2
    assert await house.count("identities") == 0
    first, second = await house.noted("signin.failed")
    assert (first.tenant, first.target, first.details["issuer"]) == (ACME, "", "https://id.example")
    assert "unknown@" not in str(second)


async def test_an_address_that_was_given_to_somebody_new_does_not_give_the_account(house: House) -> None:
    session = await come(house)
    await refused(house, subject="s-2")
    assert await come(house) == session


async def test_who_is_in_another_organisation_is_refused(house: House) -> None:
    invite = await house.ports.invites.create_invite(a.NewInvite(tenant="b"))
    await house.owner()
    asked = a.Registration(email=NEW, password=GOOD, invite=str(invite.token))
    await house.ports.sign_in.register(asked)
    assert "another organisation" in await refused(house)
    assert await house.count("identities") == 0


async def test_the_highest_role_of_the_groups_counts(house: House) -> None:
    groups = {(): "member", ("unknown",): "member", ("it", "staff"): "admin", ("staff", "chiefs"): "owner"}
    for number, (named, role) in enumerate(groups.items()):
        session = await come(house, groups=named, subject=str(number), email=f"{number}@acme.example")
        assert await house.role(session) == role


async def test_the_role_follows_the_groups(house: House) -> None:
    await house.owner()
    session = await come(house, groups=("it",))
    for groups, role in ((("chiefs",), "owner"), (("staff",), "member"), (("staff",), "member")):
        await come(house, groups=groups)
        assert await house.role(session) == role
    changes = await house.noted("member.role")
    assert [entry.details for entry in changes] == [{"old": "admin", "new": "owner"}, {"old": "owner", "new": "member"}]
    assert {(entry.tenant, entry.actor, entry.target) for entry in changes} == {(ACME, "system", session.user_id)}


async def test_the_last_owner_stays_one(house: House) -> None:
    owner = await house.owner(email=NEW)
    assert await come(house, groups=("staff",)) == owner
    assert await house.role(owner) == "owner"
    await come(house, subject="s-2", email="second@acme.example", groups=("chiefs",))
    await come(house, groups=("staff",))
    assert await house.role(owner) == "member"


async def test_two_owners_made_less_at_once_leave_one(house: House) -> None:
    people = [{"subject": f"s-{number}", "email": f"{number}@acme.example"} for number in range(3)]
    sessions = [await come(house, groups=("chiefs",), **person) for person in people]
    await asyncio.gather(*(come(house, groups=("staff",), **person) for person in people))
    roles = [await house.role(session) for session in sessions]
    assert roles.count("owner") == 1


async def test_without_groups_the_role_that_was_given_here_stays(without_groups: House) -> None:
    house = without_groups
    await house.owner()
    session = await come(house, groups=("chiefs",))
    assert await house.role(session) == "member"
    await house.ports.members.update_member(a.MemberPatch(tenant=ACME, id=session.user_id, role="admin"))
    await come(house)
    assert await house.role(session) == "admin"


async def test_without_a_default_only_groups_let_in(place: str, database_url: str) -> None:
    mapping = OidcMapping(tenant=ACME, groups={"staff": "member"})
    async with house_at(place, database_url, mapping) as house:
        session = await come(house, groups=("staff",))
        await refused(house, groups=("unknown",))
        assert await come(house, groups=("staff",)) == session


async def test_without_a_mapping_nobody_is_let_in(place: str, database_url: str) -> None:
    async with house_at(place, database_url, None) as house:
        await refused(house)
        assert await house.ports.sign_in.empty()


async def test_an_organisation_that_is_missing_lets_nobody_in(place: str, database_url: str) -> None:
    async with house_at(place, database_url, OidcMapping(tenant="nowhere", default_role="owner")) as house:
        await refused(house)
        assert await house.ports.sign_in.empty()


async def test_the_suspended_stay_outside(house: House) -> None:
    await come(house)
    await house.ports.organisations.update_organisation(a.OrganisationPatch(id=ACME, suspended=True))
    await refused(house)
    await refused(house, subject="s-2", email="second@acme.example")


async def test_what_names_nobody_is_refused(house: House) -> None:
    for bad in (
        {"email": ""},
        {"email": "nobody"},
        {"email": "a\x00@b"},
        {"subject": ""},
        {"subject": "\x00"},
        {"issuer": ""},
    ):
        await refused(house, **bad)
    assert await house.ports.sign_in.empty()


async def test_who_was_removed_comes_as_somebody_new(house: House) -> None:
    await house.owner()
    session = await come(house)
    await house.ports.members.remove_member(a.Ref(ACME, session.user_id))
    again = await come(house)
    assert again.user_id != session.user_id
    assert await come(house) == again


async def test_coming_twice_at_once_makes_one_account(house: House) -> None:
    sessions = await asyncio.gather(*(come(house) for _ in range(5)))
    assert len({session.user_id for session in sessions}) == 1
    assert len(await house.ports.members.members(ACME)) == 1
    assert len(await house.noted("user.create")) == 1
