"""What `Invites` promises, wherever it runs, and that an invite is used once."""

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec
import pytest

from services.accounts.invites import consume, invite_secrets
from services.common import account_messages as a
from services.common.account_ports import Invites
from services.common.errors import InvalidRequest, NotFound
from services.common.sql import writing
from tests.support.accounts import PEPPER, House, opened


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        await house.organisation("a")
        await house.organisation("b")
        yield house


@pytest.fixture
def port(house: House) -> Invites:
    return house.ports.invites


async def use(house: House, token: str | None, user_id: str = "user_1", email: str = "x@y.org") -> a.Invite | None:
    """As one who registers does."""
    digest = invite_secrets(PEPPER).digest_of_any(str(token))
    async with writing(house.engine) as db:
        accepted = await consume(db, digest, user_id, email, house.clock.now)
    return accepted.invite if accepted else None


async def test_a_link_shows_what_it_invites_to(house: House, port: Invites) -> None:
    admin = await house.user(role="admin")
    made = await port.create_invite(a.NewInvite(tenant="a", email=" Ann@X.Org ", role="admin", actor=admin))
    assert made.token is not None
    assert re.fullmatch(r"inv-[A-Za-z0-9_-]{43}", made.token)
    assert made.token not in repr(made)
    assert (made.email, made.role, made.expires) == ("ann@x.org", "admin", house.clock.now + 7 * 24 * 3600)
    assert await port.invite(made.token) == msgspec.structs.replace(made, organisation="A", token=None)
    assert await house.last() == ("invite.create", made.id, admin)
    seen = await house.stored()
    assert made.token not in seen
    assert made.token[4:] not in seen
    assert "ann" not in str(await house.told())


async def test_invites_are_listed_oldest_first(house: House, port: Invites) -> None:
    made = []
    for role in a.ROLES:
        made.append(msgspec.structs.replace(await port.create_invite(a.NewInvite(tenant="a", role=role)), token=None))
        house.clock.now += 1
    await port.create_invite(a.NewInvite(tenant="b"))
    assert list(await port.invites("a")) == made
    assert tuple(await port.invites("\x00")) == ()


async def test_an_invite_is_used_once(house: House, port: Invites) -> None:
    made = await port.create_invite(a.NewInvite(tenant="a", role="admin"))
    used = await asyncio.gather(*(use(house, made.token, f"user_{n}") for n in range(8)))
    (winner,) = [invite for invite in used if invite]
    assert (winner.id, winner.tenant, winner.role) == (made.id, "a", "admin")
    assert [invite.accepted_by for invite in await port.invites("a")] == [winner.accepted_by]
    with pytest.raises(NotFound):
        await port.invite(str(made.token))


async def test_what_a_transaction_that_fails_has_used_is_good_again(house: House, port: Invites) -> None:
    made = await port.create_invite(a.NewInvite(tenant="a"))
    digest = invite_secrets(PEPPER).digest_of_any(str(made.token))

    async def fail() -> None:
        async with writing(house.engine) as db:
            assert await consume(db, digest, "user_1", "x@y.org", house.clock.now)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await use(house, made.token)


async def test_an_invite_may_be_for_one_address(house: House, port: Invites) -> None:
    made = await port.create_invite(a.NewInvite(tenant="a", email="Ann@x.org"))
    assert await use(house, made.token, email="bob@x.org") is None
    assert await use(house, made.token, email="ann@x.org")


async def test_an_invite_expires(house: House, port: Invites) -> None:
    made = await port.create_invite(a.NewInvite(tenant="a", lifetime_s=100))
    house.clock.now += 99
    assert (await port.invite(str(made.token))).id == made.id
    house.clock.now += 1
    with pytest.raises(NotFound):
        await port.invite(str(made.token))
    assert await use(house, made.token) is None


async def test_a_removed_invite_is_gone(house: House, port: Invites) -> None:
    made, kept = [await port.create_invite(a.NewInvite(tenant="a")) for _ in range(2)]
    await port.remove_invite(a.Ref("a", made.id, "u"))
    assert await house.last() == ("invite.remove", made.id, "u")
    assert [invite.id for invite in await port.invites("a")] == [kept.id]
    assert await use(house, made.token) is None
    for missing in ((port.invite(str(made.token))), port.remove_invite(a.Ref("a", made.id))):
        with pytest.raises(NotFound):
            await missing


async def test_a_suspended_organisation_invites_nobody(house: House, port: Invites) -> None:
    made = await port.create_invite(a.NewInvite(tenant="a"))
    await house.ports.organisations.update_organisation(a.OrganisationPatch(id="a", suspended=True))
    with pytest.raises(NotFound):
        await port.invite(str(made.token))
    assert await use(house, made.token) is None


async def test_unknown_and_malformed_tokens_are_refused_alike(port: Invites) -> None:
    messages = set()
    for token in ("", "inv-", "inv-" + "a" * 43, "sk-" + "a" * 43, "inv-" + "é" * 43, "\x00", "x" * 100_000):
        with pytest.raises(NotFound) as failure:
            await port.invite(token)
        messages.add(str(failure.value.body()))
    assert len(messages) == 1


async def test_anothers_invites_are_missing(house: House, port: Invites) -> None:
    made = await port.create_invite(a.NewInvite(tenant="a"))
    for ref in (a.Ref("b", made.id), a.Ref("a", "invite_unknown"), a.Ref("a", "\x00"), a.Ref("\x00", made.id)):
        with pytest.raises(NotFound):
            await port.remove_invite(ref)
    with pytest.raises(NotFound):
        await port.create_invite(a.NewInvite(tenant="nobody"))
    assert await port.invite(str(made.token))


async def test_bad_fields_are_named(port: Invites) -> None:
    bad: list[tuple[str, dict[str, object]]] = [
        *(("email", {"email": text}) for text in ("x", "@", "a@", "@b", "a b@c", "a@b\x00", "a@b@c", "a@" + "x" * 260)),
        *(("lifetime_s", {"lifetime_s": seconds}) for seconds in (0.0, -1.0, 91 * 24 * 3600.0)),
    ]
    for param, fields in bad:
        with pytest.raises(InvalidRequest) as failure:
            await port.create_invite(a.NewInvite(tenant="a", **fields))  # type: ignore[arg-type]
        assert (failure.value.param, fields) == (param, fields)
