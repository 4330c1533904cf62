"""An invite is as good as whoever made it is now, wherever `Invites` and `SignIn` run."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import update

from services.accounts.tables import invites
from services.common import account_messages as a
from services.common.errors import NotFound
from services.common.sql import writing
from tests.support.accounts import House, opened


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        await house.organisation("a")
        await house.organisation("b")
        await house.organisation("operators", operator=True)
        await house.user(role="owner")
        yield house


async def invited(house: House, actor: str, role: a.Role = "member", tenant: str = "a") -> a.Invite:
    return await house.ports.invites.create_invite(a.NewInvite(tenant=tenant, role=role, actor=actor))


async def accepts(house: House, invite: a.Invite) -> bool:
    """What the link shows and what it gives agree: tried with an account that is taken away again."""
    asked = a.Registration(email="new@x.org", password="a good password", invite=str(invite.token))
    if not await is_shown(house, invite):
        with pytest.raises(NotFound):
            await house.ports.sign_in.register(asked)
        return False
    session = await house.ports.sign_in.register(asked)
    assert (await house.ports.members.member(a.Ref(session.tenant, session.user_id))).role == invite.role
    await house.ports.members.remove_member(a.Ref(session.tenant, session.user_id))
    return True


async def is_shown(house: House, invite: a.Invite) -> bool:
    """False for one whose answer is that of an unknown one."""
    answers = []
    for token in (str(invite.token), "inv-" + "a" * 43):
        try:
            answers.append(str(await house.ports.invites.invite(token)))
        except NotFound as e:
            answers.append(str(e.body()))
    return answers[0] != answers[1]


async def made(house: House, id: str, role: a.Role) -> None:
    await house.ports.members.update_member(a.MemberPatch(tenant="a", id=id, role=role))


async def test_an_invite_ends_with_its_makers_account(house: House) -> None:
    owner = await house.user(role="owner")
    kept, lost = [await invited(house, owner) for _ in range(2)]
    assert await accepts(house, kept)
    await house.ports.members.remove_member(a.Ref("a", owner))
    assert not await accepts(house, lost)


@pytest.mark.parametrize("role", a.ROLES)
@pytest.mark.parametrize("left", a.ROLES)
async def test_an_invite_gives_no_more_than_its_maker_has_now(house: House, role: a.Role, left: a.Role) -> None:
    maker = await house.user(role="owner")
    invite = await invited(house, maker, role)
    await made(house, maker, left)
    good = left != "member" and a.ROLES.index(left) >= a.ROLES.index(role)
    assert await accepts(house, invite) == good


async def test_an_invite_is_good_again_when_its_maker_is(house: House) -> None:
    maker = await house.user(role="admin")
    invite = await invited(house, maker)
    await made(house, maker, "member")
    assert not await accepts(house, invite)
    await made(house, maker, "admin")
    assert await accepts(house, invite)


async def test_a_keys_invite_ends_with_the_key(house: House) -> None:
    key = await house.key(scopes=("admin",))
    kept, lost = [await invited(house, key.id, "owner") for _ in range(2)]
    assert await accepts(house, kept)
    await house.ports.keys.revoke_key(a.Ref("a", key.id))
    assert not await accepts(house, lost)


async def test_an_expired_keys_invite_is_refused(house: House) -> None:
    key = await house.key(scopes=("admin",), expires=house.clock.now + 60)
    kept, lost = [await invited(house, key.id) for _ in range(2)]
    house.clock.now += 59
    assert await accepts(house, kept)
    house.clock.now += 1
    assert not await accepts(house, lost)


@pytest.mark.parametrize("end", ["demoted", "removed"])
async def test_a_keys_invite_needs_the_keys_owner(house: House, end: str) -> None:
    owner = await house.user(role="owner")
    key = await house.key(owner=owner, scopes=("admin",))
    kept, lost = [await invited(house, key.id, "owner") for _ in range(2)]
    assert await accepts(house, kept)
    if end == "demoted":
        await made(house, owner, "admin")
    else:
        await house.ports.members.remove_member(a.Ref("a", owner))
    assert not await accepts(house, lost)


async def test_a_service_accounts_invite_ends_with_it(house: House) -> None:
    account = await house.ports.service_accounts.create_service_account(a.NewServiceAccount(tenant="a", name="S"))
    key = await house.key(owner=account.id, scopes=("admin",))
    kept, lost, too_much = (
        await invited(house, key.id),
        await invited(house, key.id),
        await invited(house, key.id, "owner"),
    )
    assert await accepts(house, kept)
    assert not await accepts(house, too_much)
    await house.ports.service_accounts.remove_service_account(a.Ref("a", account.id))
    assert not await accepts(house, lost)


async def test_operators_invite_into_every_organisation_and_others_into_their_own(house: House) -> None:
    operator = await house.user("operators", role="owner")
    stranger = await house.user("b", role="owner")
    kept, lost = [await invited(house, operator, "owner") for _ in range(2)]
    assert await accepts(house, kept)
    assert not await accepts(house, await invited(house, stranger))
    await house.user("operators", role="owner")
    await house.ports.members.update_member(a.MemberPatch(tenant="operators", id=operator, role="admin"))
    assert not await accepts(house, lost)


@pytest.mark.parametrize("actor", ["cli", "system", "owner"])
async def test_who_holds_the_machine_may_always_invite(house: House, actor: str) -> None:
    assert await accepts(house, await invited(house, actor, "owner"))


async def test_nobody_knows_who_made_an_old_invite(house: House) -> None:
    """One that is older than the column stays good."""
    invite = await invited(house, "cli", "owner")
    async with writing(house.engine) as db:
        await db.execute(update(invites).values(made_by=""))
    assert await accepts(house, invite)


async def test_an_unknown_maker_stands_for_nothing(house: House) -> None:
    for actor in ("user_unknown", "key_unknown", "\x00", "CLI"):
        assert not await accepts(house, await invited(house, actor))
