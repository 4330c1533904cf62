"""What `Organisations` promises, wherever it runs."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from services.common import account_messages as a
from services.common.account_ports import Organisations
from services.common.errors import Conflict, InvalidRequest, NotFound
from tests.support.accounts import House, opened


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        yield house


@pytest.fixture
def port(house: House) -> Organisations:
    return house.ports.organisations


async def test_an_organisation_is_kept_as_it_was_made(house: House, port: Organisations) -> None:
    request = a.NewOrganisation(
        id="acme", name=" Acme & Söhne ", tier="team", region="eu-1", operator=True, actor="cli"
    )
    made = await port.create_organisation(request)
    assert made == a.Organisation(
        id="acme", name="Acme & Söhne", tier="team", region="eu-1", operator=True, created=house.clock.now
    )
    assert await port.organisation("acme") == made
    assert await house.last("acme") == ("organisation.create", "acme", "cli")


async def test_an_id_is_made_where_none_is_given_and_the_oldest_come_first(house: House, port: Organisations) -> None:
    made = []
    for name in ("one", "two", "three"):
        made.append(await port.create_organisation(a.NewOrganisation(name=name)))
        house.clock.now += 1
    assert len({item.id for item in made}) == 3
    assert made[0].tier == "free"
    assert list(await port.organisations()) == made


async def test_an_id_is_taken_once(house: House, port: Organisations) -> None:
    results = await asyncio.gather(
        *(port.create_organisation(a.NewOrganisation(id="acme", name=str(n))) for n in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, a.Organisation) for result in results) == 1
    assert [result.param for result in results if isinstance(result, Conflict)] == ["id"] * 4
    assert len(await house.told()) == 1


async def test_a_patch_changes_what_it_names(house: House, port: Organisations) -> None:
    await house.organisation("acme", tier="team", region="eu")
    changed = await port.update_organisation(
        a.OrganisationPatch(id="acme", monthly_budget=0, suspended=True, actor="u")
    )
    assert changed == await port.organisation("acme")
    assert (changed.name, changed.tier, changed.region, changed.monthly_budget, changed.suspended) == (
        "ACME",
        "team",
        "eu",
        0,
        True,
    )
    entry = (await house.told())[-1]
    assert (entry.tenant, entry.actor, entry.action, entry.target) == ("acme", "u", "organisation.update", "acme")
    assert entry.details == {
        "monthly_budget": {"old": None, "new": 0},
        "suspended": {"old": False, "new": True},
    }
    patch = a.OrganisationPatch(id="acme", monthly_budget=-1, suspended=False, name="New", region="us")
    again = await port.update_organisation(patch)
    assert (again.name, again.region, again.monthly_budget, again.suspended) == ("New", "us", None, False)
    assert await port.organisation("acme") == again


async def test_a_change_of_tier_is_told_by_itself(house: House, port: Organisations) -> None:
    await house.organisation("acme")
    assert (await port.update_organisation(a.OrganisationPatch(id="acme", tier="plus", name="N"))).tier == "plus"
    change, update = (await house.told())[-2:]
    assert (change.action, change.details) == ("tier.change", {"old": "free", "new": "plus"})
    assert (update.action, list(update.details)) == ("organisation.update", ["name"])


async def test_what_changes_nothing_is_no_deed(house: House, port: Organisations) -> None:
    await house.organisation("acme", tier="team")
    before = await house.told()
    for patch in (a.OrganisationPatch(id="acme"), a.OrganisationPatch(id="acme", tier="team", monthly_budget=-1)):
        await port.update_organisation(patch)
    assert await house.told() == before


async def test_missing_ones_are_not_found(house: House, port: Organisations) -> None:
    await house.organisation("acme")
    for id in ("", "other", "acme\x00", "\x00", "ACME"):
        with pytest.raises(NotFound):
            await port.organisation(id)
        with pytest.raises(NotFound):
            await port.update_organisation(a.OrganisationPatch(id=id, name="x"))


async def test_bad_fields_are_named(house: House, port: Organisations) -> None:
    await house.organisation("acme")
    for param, fields in (
        ("name", {"name": ""}),
        ("name", {"name": " "}),
        ("name", {"name": "x" * 201}),
        ("name", {"name": "a\x00"}),
        ("tier", {"tier": "gold"}),
        ("region", {"region": "a/b"}),
        ("region", {"region": "x" * 65}),
    ):
        with pytest.raises(InvalidRequest) as failure:
            await port.create_organisation(a.NewOrganisation(**{"name": "ok"} | fields))
        assert failure.value.param == param
        with pytest.raises(InvalidRequest) as failure:
            await port.update_organisation(a.OrganisationPatch(id="acme", **fields))
        assert failure.value.param == param
    for id in ("", "a/b", "x" * 101, "a b", "é", "-a", "a\n"):
        with pytest.raises(InvalidRequest) as failure:
            await port.create_organisation(a.NewOrganisation(name="ok", id=id))
        assert failure.value.param == "id"
    for budget in (-2, 2**53 + 1, 10**30):
        with pytest.raises(InvalidRequest) as failure:
            await port.update_organisation(a.OrganisationPatch(id="acme", monthly_budget=budget))
        assert failure.value.param == "monthly_budget" or "monthly_budget" in failure.value.message
    assert len(await house.told()) == 1
