"""What `Members` promises, wherever it runs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest
from sqlalchemy import insert, select, update

from services.accounts.tables import identities, sessions, users
from services.common import account_messages as a
from services.common.account_ports import Members
from services.common.errors import Conflict, Forbidden, InvalidApiKey, InvalidRequest, NotFound
from services.common.sql import reading, writing
from tests.support.accounts import House, opened


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        await house.organisation("a")
        await house.organisation("b")
        yield house


@pytest.fixture
def port(house: House) -> Members:
    return house.ports.members


async def roles(house: House, tenant: str = "a") -> dict[str, str]:
    return {member.id: member.role for member in await house.ports.members.members(tenant)}


async def test_members_are_listed_oldest_first_without_their_password(house: House, port: Members) -> None:
    first = await house.user(role="owner", name="Ann")
    house.clock.now += 1
    second = await house.user()
    await house.user("b")
    async with writing(house.engine) as db:
        await db.execute(update(users).where(users.c.id == first).values(password="$argon2id$hash", last_seen=5.0))
    found = await port.members("a")
    assert [member.id for member in found] == [first, second]
    assert found[0] == a.Member(
        id=first,
        tenant="a",
        email=f"{first}@x.org",
        name="Ann",
        role="owner",
        space=f"a/{first}",
        has_password=True,
        created=house.clock.now - 1,
        last_seen=5.0,
    )
    assert not found[1].has_password
    assert await port.member(a.Ref("a", first)) == found[0]
    assert tuple(await port.members("nobody\x00")) == ()


async def test_a_role_changes_at_once_and_is_told(house: House, port: Members) -> None:
    owner, user = await house.user(role="owner"), await house.user()
    key = await house.key(owner=user, scopes=("model.read", "admin"))
    assert (await house.who(key)).scopes == ("model.read",)
    changed = await port.update_member(a.MemberPatch(tenant="a", id=user, role="admin", actor=owner))
    assert changed == await port.member(a.Ref("a", user))
    who = await house.who(key)
    assert (who.role, who.scopes) == ("admin", ("model.read", "admin"))
    entry = (await house.told("a"))[-1]
    assert (entry.action, entry.target, entry.actor) == ("member.role", user, owner)
    assert entry.details == {"old": "member", "new": "admin"}


async def test_a_name_changes_and_is_not_kept_in_the_log(house: House, port: Members) -> None:
    user = await house.user()
    assert (
        await port.update_member(a.MemberPatch(tenant="a", id=user, name="Zoë Quux", actor=user))
    ).name == "Zoë Quux"
    assert (await port.member(a.Ref("a", user))).name == "Zoë Quux"
    assert await house.last() == ("member.update", user, user)
    assert "Quux" not in str(await house.told())
    before = await house.told()
    await port.update_member(a.MemberPatch(tenant="a", id=user, name="Zoë Quux", role="member"))
    assert await house.told() == before


async def test_the_last_owner_stays_an_owner(house: House, port: Members) -> None:
    owner = await house.user(role="owner")
    await house.user("b", role="owner")
    await house.user(role="admin")
    for attempt in (
        port.update_member(a.MemberPatch(tenant="a", id=owner, role="member")),
        port.remove_member(a.Ref("a", owner)),
    ):
        with pytest.raises(Conflict):
            await attempt
    await port.update_member(a.MemberPatch(tenant="a", id=owner, role="owner", name="still"))
    other = await house.user(role="owner")
    await port.remove_member(a.Ref("a", owner))
    assert [id for id, role in (await roles(house)).items() if role == "owner"] == [other]


@pytest.mark.parametrize("deed", ["demote", "remove", "both"])
async def test_owners_who_turn_on_each_other_leave_one(house: House, port: Members, deed: str) -> None:
    for _ in range(3):
        owners = [await house.user(role="owner") for _ in range(4)]
        for id, role in (await roles(house)).items():
            if role == "owner" and id not in owners:
                await port.remove_member(a.Ref("a", id))
        attempts = [
            port.update_member(a.MemberPatch(tenant="a", id=id, role="admin"))
            if deed == "demote" or (deed == "both" and number % 2)
            else port.remove_member(a.Ref("a", id))
            for number, id in enumerate(owners)
        ]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        assert [type(result) for result in results if isinstance(result, Exception)] == [Conflict]
        assert list((await roles(house)).values()).count("owner") == 1


async def test_whoever_is_removed_leaves_nothing_that_lets_in(house: House, port: Members) -> None:
    owner, user = await house.user(role="owner"), await house.user()
    key = await house.key(owner=user)
    tokens = [
        await house.ports.sessions.open(a.NewSession(tenant="a", user_id=user)),
        await house.ports.sessions.open(a.NewSession(tenant="a", key_id=key.id)),
    ]
    kept = await house.ports.sessions.open(a.NewSession(tenant="a", user_id=owner))
    async with writing(house.engine) as db:
        await db.execute(insert(identities).values(issuer="https://i", subject="s", user_id=user))
    await port.remove_member(a.Ref("a", user, owner))
    with pytest.raises(NotFound):
        await port.member(a.Ref("a", user))
    with pytest.raises(InvalidApiKey):
        await house.who(key)
    for token in tokens:
        with pytest.raises(InvalidApiKey):
            await house.ports.sessions.resolve(token)
    assert (await house.ports.sessions.resolve(kept)).user_id == owner
    async with reading(house.engine) as db:
        assert (await db.execute(select(identities))).all() == []
        assert len((await db.execute(select(sessions))).all()) == 1
    assert await house.last() == ("member.remove", user, owner)


async def test_anothers_members_are_missing(house: House, port: Members) -> None:
    owner = await house.user(role="owner")
    await house.user(role="owner")
    for ref in (a.Ref("b", owner), a.Ref("a", "user_unknown"), a.Ref("a", f"{owner}\x00"), a.Ref("\x00", owner)):
        messages = []
        for attempt in (
            port.member(ref),
            port.update_member(a.MemberPatch(tenant=ref.tenant, id=ref.id, role="admin", name="x")),
            port.remove_member(ref),
        ):
            with pytest.raises(NotFound) as failure:
                await attempt
            messages.append(str(failure.value.body()))
        assert len(set(messages)) == 1
    assert (await port.member(a.Ref("a", owner))).role == "owner"


async def test_bad_fields_are_named(house: House, port: Members) -> None:
    user = await house.user()
    for name in ("x" * 201, "a\x00", "a\nb"):
        with pytest.raises(InvalidRequest) as failure:
            await port.update_member(a.MemberPatch(tenant="a", id=user, name=name))
        assert failure.value.param == "name"
    with pytest.raises(InvalidRequest) as failure:
        await port.update_member(a.MemberPatch(tenant="a", id=user, role="king"))  # type: ignore[arg-type]
    assert failure.value.param == "role" or "$.role" in failure.value.message


@pytest.mark.parametrize("target", a.ROLES)
@pytest.mark.parametrize("role", a.ROLES)
async def test_the_rights_that_count_are_those_at_the_time_of_the_deed(
    house: House, port: Members, role: a.Role, target: a.Role
) -> None:  # fmt: skip
    """What a gateway has checked a moment before may have changed."""
    await house.user(role="owner")
    actor, user = await house.user(role=role), await house.user(role=target)
    key = await house.key(owner=actor, scopes=("admin",))
    weak = await house.key(owner=actor)
    allowed = role != "member" and a.ROLES.index(role) >= a.ROLES.index(target)
    for name, may in ((actor, allowed), (key.id, allowed), (weak.id, False), ("user_unknown", False)):
        for patch in (
            a.MemberPatch(tenant="a", id=user, name=f"by {name}"[:50], actor=name),
            a.MemberPatch(tenant="a", id=user, role=target, actor=name),
        ):
            assert await done(port.update_member(patch)) == may
        assert await done(port.update_member(a.MemberPatch(tenant="a", id=user, role="owner", actor=name))) == (
            may and role == "owner"
        )
        await port.update_member(a.MemberPatch(tenant="a", id=user, role=target))
    assert await done(port.update_member(a.MemberPatch(tenant="a", id=actor, name="mine", actor=actor)))
    assert await done(port.remove_member(a.Ref("a", user, weak.id))) is False
    assert await done(port.remove_member(a.Ref("a", user, actor))) == allowed


async def done(what: Awaitable[object]) -> bool:
    try:
        await what
    except Forbidden:
        return False
    return True
