"""What `SignIn` promises about passwords and new accounts, wherever it runs."""

import asyncio
import logging
import unicodedata
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.common import account_messages as a
from services.common.errors import AntiphonError, Conflict, Forbidden, InvalidRequest, NotFound, NotSignedIn
from tests.support.sign_in import ACME, GOOD, OTHER, PEPPER, House, house_at

OLIVE, NEW = "olive@acme.example", "new@acme.example"


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with house_at(place, database_url) as house:
        yield house


async def enter(house: House, email: str = OLIVE, password: str = GOOD) -> a.NewSession:
    return await house.ports.sign_in.with_password(
        a.PasswordSignIn(email=email, password=password, address="192.0.2.1")
    )


def registration(**fields: Any) -> a.Registration:
    return a.Registration(**({"email": OLIVE, "password": GOOD, "tenant": ACME} | fields))


async def test_the_first_user_owns_the_installation(house: House) -> None:
    assert await house.ports.sign_in.empty()
    session = await house.ports.sign_in.register(registration(name=" Olive ", space="what-was-there"))
    assert not await house.ports.sign_in.empty()
    olive = await house.ports.members.member(a.Ref(ACME, session.user_id))
    assert (session.tenant, session.key_id) == (ACME, "")
    assert (olive.email, olive.name, olive.role, olive.space) == (OLIVE, "Olive", "owner", "what-was-there")
    assert (olive.has_password, olive.created, olive.last_seen) == (True, house.clock.now, house.clock.now)
    (entry,) = await house.noted("user.create")
    assert (entry.tenant, entry.actor, entry.target) == (ACME, session.user_id, session.user_id)
    assert entry.details == {"role": "owner"}


async def test_of_two_first_users_one_wins(house: House) -> None:
    people = [registration(email=f"{number}@acme.example") for number in range(5)]
    done = await asyncio.gather(*map(house.ports.sign_in.register, people), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in done) == ["Forbidden"] * 4 + ["NewSession"]
    assert len(await house.ports.members.members(ACME)) == 1


async def test_nobody_comes_uninvited(house: House) -> None:
    await house.owner()
    with pytest.raises(Forbidden):
        await house.ports.sign_in.register(registration(email=NEW))
    for invite in ("inv-" + "a" * 43, "x", "\x00", "sk-" + "a" * 43):
        with pytest.raises(NotFound):
            await house.ports.sign_in.register(registration(email=NEW, invite=invite))


async def test_the_first_user_needs_an_organisation(house: House) -> None:
    for tenant in ("", "nowhere", "\x00"):
        with pytest.raises(NotFound):
            await house.ports.sign_in.register(registration(tenant=tenant))
    assert await house.ports.sign_in.empty()


async def test_an_invite_makes_one_account(house: House) -> None:
    await house.owner()
    invite = await house.ports.invites.create_invite(a.NewInvite(tenant=ACME, role="admin", email=NEW))
    asked = registration(email="New@ACME.example", invite=str(invite.token), tenant="b", space="olives")
    session = await house.ports.sign_in.register(asked)
    member = await house.ports.members.member(a.Ref(ACME, session.user_id))
    assert (member.email, member.role, member.space) == (NEW, "admin", f"{ACME}/{session.user_id}")
    (entry,) = await house.noted("invite.accept")
    assert (entry.tenant, entry.actor, entry.target) == (ACME, session.user_id, invite.id)
    with pytest.raises(NotFound):
        await house.ports.sign_in.register(registration(email="other@acme.example", invite=str(invite.token)))


async def test_of_many_who_share_an_invite_one_gets_in(house: House) -> None:
    await house.owner()
    invite = await house.ports.invites.create_invite(a.NewInvite(tenant=ACME))
    people = [registration(email=f"{number}@acme.example", invite=str(invite.token)) for number in range(5)]
    done = await asyncio.gather(*map(house.ports.sign_in.register, people), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in done) == ["NewSession"] + ["NotFound"] * 4
    assert len(await house.ports.members.members(ACME)) == 2


async def test_an_invite_is_for_whom_it_names_and_for_its_time(house: House) -> None:
    await house.owner()
    named = await house.ports.invites.create_invite(a.NewInvite(tenant=ACME, email=NEW))
    with pytest.raises(NotFound):
        await house.ports.sign_in.register(registration(email="thief@acme.example", invite=str(named.token)))
    brief = await house.ports.invites.create_invite(a.NewInvite(tenant=ACME, lifetime_s=60))
    house.clock.now += 61
    with pytest.raises(NotFound):
        await house.ports.sign_in.register(registration(email=NEW, invite=str(brief.token)))
    await house.ports.sign_in.register(registration(email=NEW, invite=str(named.token)))


async def test_a_taken_address_leaves_the_invite_good(house: House) -> None:
    await house.owner()
    invite = await house.ports.invites.create_invite(a.NewInvite(tenant="b"))
    with pytest.raises(Conflict) as failure:
        await house.ports.sign_in.register(registration(invite=str(invite.token)))
    assert failure.value.param == "email"
    assert (await house.ports.sign_in.register(registration(email=NEW, invite=str(invite.token)))).tenant == "b"


BAD = {
    "email": ("", "a", "a@", "@b", "a@b@c", "a b@c", "a\x00@b", "a" * 250 + "@b.cd"),
    "password": ("", "short", "x" * 1025, "PassWord1", "Olive@acme.example"),
    "name": ("x" * 201, "a\x00b", "a\nb"),
}


@pytest.mark.parametrize("param", BAD)
async def test_what_a_newcomer_gives_is_checked(house: House, param: str) -> None:
    for value in BAD[param]:
        with pytest.raises(InvalidRequest) as failure:
            await house.ports.sign_in.register(registration(**{param: value}))
        assert failure.value.param == param
    assert await house.ports.sign_in.empty()


async def test_a_password_lets_its_owner_in(house: House) -> None:
    olive = await house.owner()
    house.clock.now += 100
    assert await enter(house, f"  {OLIVE.upper()} ") == olive
    assert (await house.ports.members.member(a.Ref(ACME, olive.user_id))).last_seen == house.clock.now
    (entry,) = await house.noted("signin.password")
    assert (entry.tenant, entry.actor, entry.details) == (ACME, olive.user_id, {"address": "192.0.2.1"})


async def test_a_password_is_the_same_from_every_keyboard(house: House) -> None:
    await house.owner(password=unicodedata.normalize("NFD", "Größe ﬁnden"))
    await enter(house, password=unicodedata.normalize("NFC", "Größe finden"))


async def failure_of(house: House, email: str, password: str) -> AntiphonError:
    with pytest.raises(AntiphonError) as failure:
        await enter(house, email, password)
    return failure.value


async def test_wrong_and_unknown_are_told_apart_by_nobody(house: House) -> None:
    await house.owner()
    identity = a.ExternalIdentity(issuer="i", subject="s", email=NEW, email_verified=True)
    await house.ports.sign_in.with_identity(identity)
    tries = [(OLIVE, OTHER), (OLIVE, ""), (OLIVE, "x" * 100_000), ("nobody@acme.example", GOOD), (NEW, "")]
    tries += [("no address", GOOD), ("\x00", GOOD), ("", "")]
    failures = []
    for email, password in tries:
        failures.append(await failure_of(house, email, password))
        house.clock.now += 3600
    assert {type(failure) for failure in failures} == {NotSignedIn}
    assert len({(failure.message, failure.param, failure.wire_code) for failure in failures}) == 1


async def test_failures_are_noted_without_strangers_addresses(house: House) -> None:
    olive = await house.owner()
    await failure_of(house, OLIVE, OTHER)
    for email in ("stranger@elsewhere.example", "stranger@elsewhere.example", "another@elsewhere.example"):
        await failure_of(house, email, OTHER)
    known, first, second, third = await house.noted("signin.failed")
    assert (known.tenant, known.target, known.details) == (ACME, olive.user_id, {"address": "192.0.2.1"})
    assert (first.tenant, first.target, first.details["address"]) == ("", "", "192.0.2.1")
    assert first.details == second.details != third.details
    assert "elsewhere" not in await house.stored()


async def test_the_suspended_stay_outside(house: House) -> None:
    await house.owner()
    await house.ports.organisations.update_organisation(a.OrganisationPatch(id=ACME, suspended=True))
    assert isinstance(await failure_of(house, OLIVE, OTHER), NotSignedIn)
    assert isinstance(await failure_of(house, OLIVE, GOOD), Forbidden)
    assert await house.noted("signin.password") == []


async def change(house: House, session: a.NewSession, new: str = OTHER, **fields: Any) -> None:
    request = {"tenant": session.tenant, "user_id": session.user_id, "new": new, "actor": session.user_id} | fields
    await house.ports.sign_in.set_password(a.NewPassword(**request))


async def test_a_new_password_signs_out_everywhere(house: House) -> None:
    olive = await house.owner()
    token = await house.ports.sessions.open(olive)
    other = await house.ports.sessions.open(await house.newcomer(NEW))
    await change(house, olive, current=GOOD)
    with pytest.raises(NotSignedIn):
        await house.ports.sessions.resolve(token)
    await house.ports.sessions.resolve(other)
    await failure_of(house, OLIVE, GOOD)
    await enter(house, password=OTHER)
    (entry,) = await house.noted("user.password")
    assert (entry.tenant, entry.actor, entry.target) == (ACME, olive.user_id, olive.user_id)


async def test_a_new_password_needs_the_old_one(house: House) -> None:
    olive = await house.owner()
    with pytest.raises(InvalidRequest) as failure:
        await change(house, olive)
    assert failure.value.param == "current"
    with pytest.raises(NotSignedIn) as wrong:
        await change(house, olive, current=OTHER)
    assert wrong.value.param == "current"
    await enter(house)


async def test_the_command_line_needs_no_old_password(house: House) -> None:
    olive = await house.owner()
    await change(house, olive, actor="cli")
    await enter(house, password=OTHER)


async def test_who_has_no_password_may_set_one(house: House) -> None:
    identity = a.ExternalIdentity(issuer="i", subject="s", email=NEW, email_verified=True)
    session = await house.ports.sign_in.with_identity(identity)
    await change(house, session)
    assert await enter(house, NEW, OTHER) == session


async def test_a_new_password_is_checked(house: House) -> None:
    olive = await house.owner()
    for new in ("short", "12345678", OLIVE):
        with pytest.raises(InvalidRequest) as failure:
            await change(house, olive, new, current=GOOD)
        assert failure.value.param == "new"


async def test_only_ones_own_organisations_passwords_can_be_set(house: House) -> None:
    olive = await house.owner()
    for tenant, user in (("b", olive.user_id), (ACME, "user_unknown"), (ACME, ""), (ACME, "\x00")):
        with pytest.raises(NotFound):
            await change(house, a.NewSession(tenant=tenant, user_id=user), actor="cli")
    await enter(house)


async def test_of_two_changes_at_once_one_counts(house: House) -> None:
    olive = await house.owner()
    changes = [change(house, olive, f"a new password {number}", current=GOOD) for number in range(3)]
    done = await asyncio.gather(*changes, return_exceptions=True)
    assert sum(outcome is None for outcome in done) == 1, done
    assert all(outcome is None or isinstance(outcome, Conflict | NotSignedIn) for outcome in done), done


async def test_a_password_is_kept_nowhere(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    olive = await house.owner()
    await enter(house)
    await failure_of(house, OLIVE, "a wrong guess at it")
    await change(house, olive, current=GOOD)
    attempts = [a.PasswordSignIn(email=OLIVE, password=GOOD), registration()]
    seen = await house.stored() + caplog.text + repr(attempts) + repr(vars(house.ports.sign_in))
    assert "$argon2id$" in seen
    for secret in (GOOD, OTHER, "a wrong guess at it", PEPPER.decode()):
        assert secret not in seen
    assert (await house.ports.audit.verify()).broken_at is None
