"""What `Keys` promises, wherever it runs."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from services.common import account_messages as a
from services.common.account_ports import Keys
from services.common.errors import InvalidApiKey, InvalidRequest, NotFound
from tests.support.accounts import PEPPER, House, opened


@pytest.fixture(params=[False, True], ids=["asked", "cached"])
def cached(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def house(place: str, cached: bool, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url, cached=cached) as house:
        await house.organisation("a", tier="team", region="eu")
        await house.organisation("b")
        yield house


@pytest.fixture
def keys(house: House) -> Keys:
    return house.ports.keys


async def refused(house: House, key: a.ApiKey) -> None:
    """Once the last answer is no longer fresh, in the words that any bad key gets."""
    house.clock.now += 3.1
    with pytest.raises(InvalidApiKey) as failure:
        await house.who(key)
    assert failure.value.body()["error"] == {
        "message": "Incorrect API key provided.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }


async def test_a_key_of_the_organisation_itself(house: House) -> None:
    key = await house.key(name="laptop")
    assert key.secret is not None
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}", key.secret)
    assert re.fullmatch(r"key_[0-9a-f]{32}", key.id)
    assert (key.tenant, key.name, key.hint, key.created) == ("a", "laptop", key.secret[-4:], house.clock.now)
    expected = a.Principal(tenant="a", key_id=key.id, space="a", role="owner", tier="team", region="eu")
    for _ in range(3):
        assert await house.who(key) == expected


async def test_a_key_of_a_user_has_the_users_space_and_role(house: House) -> None:
    user = await house.user(role="admin")
    who = await house.who(await house.key(owner=user, scopes=("model.read", "admin"), models=("m1", "m2*")))
    assert (who.user_id, who.space, who.role, who.scopes, who.models) == (
        user,
        f"a/{user}",
        "admin",
        ("model.read", "admin"),
        ("m1", "m2*"),
    )


async def test_a_key_of_a_service_account_has_a_space_of_its_own(house: House) -> None:
    account = await house.ports.service_accounts.create_service_account(a.NewServiceAccount(tenant="a", name="ci"))
    who = await house.who(await house.key(owner=account.id))
    assert (who.user_id, who.space, who.role, who.scopes) == (account.id, f"a/{account.id}", "member", a.USER_SCOPES)


async def test_the_tier_and_budget_of_the_organisation_are_as_they_are_now(house: House) -> None:
    key = await house.key()
    patch = a.OrganisationPatch(id="a", tier="plus", monthly_budget=7_000_000, region="us")
    await house.ports.organisations.update_organisation(patch)
    who = await house.who(key)
    assert (who.tier, who.monthly_budget, who.region) == ("plus", 7_000_000, "us")


async def test_a_secret_is_shown_once_and_kept_nowhere(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = await house.key()
    secret = str(key.secret)
    await house.who(key)
    assert [item.secret for item in await house.ports.keys.keys(a.KeyQuery(tenant="a"))] == [None]
    assert secret not in repr(key)
    with pytest.raises(InvalidApiKey) as failure:
        await house.ports.keys.authenticate(secret[:-1] + ("A" if secret[-1] != "A" else "B"))
    seen = (
        await house.stored() + caplog.text + repr(failure.value) + failure.value.message + repr(vars(house.ports.keys))
    )
    for part in (secret[3:], secret[3:20], PEPPER.decode()):
        assert part not in seen


async def test_a_tenant_sees_its_own_keys_oldest_first(house: House, keys: Keys) -> None:
    user = await house.user()
    project = (await house.ports.projects.create_project(a.NewProject(tenant="a", name="p"))).id
    made = []
    for fields in ({"name": "one"}, {"owner": user}, {"project": project, "expires": 2e6}):
        made.append(msgspec.structs.replace(await house.key(**fields), secret=None))
        house.clock.now += 1
    await house.key("b", name="theirs")

    async def found(**query: str) -> Sequence[a.ApiKey]:
        return list(await keys.keys(a.KeyQuery(tenant="a", **query)))

    assert await found() == made
    assert await found(owner=user) == [made[1]]
    assert await found(owner="") == [made[0], made[2]]
    assert await found(project=project) == [made[2]]
    assert await found(owner="nobody\x00") == []
    assert tuple(await keys.keys(a.KeyQuery(tenant="nobody"))) == ()


async def test_a_revoked_key_is_refused_at_once(house: House, keys: Keys) -> None:
    key, other = await house.key(), await house.key()
    await house.who(key)
    await house.who(other)
    await keys.revoke_key(a.Ref("a", key.id, "somebody"))
    with pytest.raises(InvalidApiKey):
        await house.who(key)
    assert (await house.who(other)).key_id == other.id
    assert {item.id: item.revoked for item in await keys.keys(a.KeyQuery(tenant="a"))} == {
        key.id: True,
        other.id: False,
    }
    before = await house.told()
    await keys.revoke_key(a.Ref("a", key.id))
    assert await house.told() == before
    assert await house.last() == ("key.revoke", key.id, "somebody")


async def test_sessions_that_a_key_opened_end_with_it(house: House, keys: Keys) -> None:
    key = await house.key()
    token = await house.ports.sessions.open(a.NewSession(tenant="a", key_id=key.id))
    assert (await house.ports.sessions.resolve(token)).key_id == key.id
    await keys.revoke_key(a.Ref("a", key.id))
    house.clock.now += 3.1
    with pytest.raises(InvalidApiKey):
        await house.ports.sessions.resolve(token)


async def test_anothers_key_cannot_be_revoked(house: House, keys: Keys) -> None:
    key = await house.key()
    for ref in (a.Ref("b", key.id), a.Ref("a", "key_unknown"), a.Ref("a", "key_\x00"), a.Ref("\x00", key.id)):
        with pytest.raises(NotFound):
            await keys.revoke_key(ref)
    assert (await house.who(key)).key_id == key.id


async def test_an_expired_key_is_refused(house: House) -> None:
    key = await house.key(expires=house.clock.now + 10)
    house.clock.now += 9
    await house.who(key)
    house.clock.now += 1
    await refused(house, key)


async def test_a_suspended_organisations_keys_are_refused(house: House) -> None:
    key, theirs = await house.key(), await house.key("b")
    await house.ports.organisations.update_organisation(a.OrganisationPatch(id="a", suspended=True))
    await refused(house, key)
    await house.who(theirs)
    await house.ports.organisations.update_organisation(a.OrganisationPatch(id="a", suspended=False))
    await house.who(key)


async def test_an_archived_projects_keys_are_refused(house: House) -> None:
    project = (await house.ports.projects.create_project(a.NewProject(tenant="a", name="p"))).id
    key, other = await house.key(project=project), await house.key()
    assert (await house.who(key)).project == project
    await house.ports.projects.update_project(a.ProjectPatch(tenant="a", id=project, archived=True))
    await refused(house, key)
    await house.who(other)


async def test_keys_go_with_their_owner(house: House) -> None:
    await house.user(role="owner")
    user = await house.user()
    account = await house.ports.service_accounts.create_service_account(a.NewServiceAccount(tenant="a", name="ci"))
    gone = [await house.key(owner=user), await house.key(owner=account.id)]
    kept = await house.key()
    await house.ports.members.remove_member(a.Ref("a", user))
    await house.ports.service_accounts.remove_service_account(a.Ref("a", account.id))
    for key in gone:
        await refused(house, key)
    listed = await house.ports.keys.keys(a.KeyQuery(tenant="a"))
    assert {item.id for item in listed if item.revoked} == {key.id for key in gone}
    await house.who(kept)


async def test_what_a_key_names_is_there(house: House) -> None:
    theirs = await house.user("b")
    project = (await house.ports.projects.create_project(a.NewProject(tenant="b", name="p"))).id
    for param, fields in (
        ("owner", {"owner": theirs}),
        ("owner", {"owner": "user_unknown"}),
        ("owner", {"owner": "\x00"}),
        ("project", {"project": project}),
        ("project", {"project": "proj_unknown"}),
        (None, {"tenant": "nobody"}),
    ):
        with pytest.raises(NotFound) as failure:
            await house.key(**fields)  # type: ignore[arg-type]
        assert failure.value.param == param
    await house.ports.projects.update_project(a.ProjectPatch(tenant="b", id=project, archived=True))
    with pytest.raises(InvalidRequest) as archived:
        await house.key("b", project=project)
    assert archived.value.param == "project"
    assert [entry.action for entry in await house.told() if entry.action.startswith("key.")] == []


async def test_a_service_accounts_keys_are_in_its_project(house: House) -> None:
    one, two = [await house.ports.projects.create_project(a.NewProject(tenant="a", name=n)) for n in ("one", "two")]
    new = a.NewServiceAccount(tenant="a", name="ci", project=one.id)
    account = await house.ports.service_accounts.create_service_account(new)
    assert (await house.key(owner=account.id)).project == one.id
    assert (await house.key(owner=account.id, project=one.id)).project == one.id
    with pytest.raises(InvalidRequest) as failure:
        await house.key(owner=account.id, project=two.id)
    assert failure.value.param == "project"


BAD: list[tuple[str, dict[str, object]]] = [
    ("name", {"name": "x" * 201}),
    ("name", {"name": "a\x00b"}),
    ("name", {"name": "a\nb"}),
    ("expires", {"expires": 999_999.0}),
    ("expires", {"expires": 1_000_000.0}),
    ("models", {"models": ("",)}),
    ("models", {"models": ("a,b",)}),
    ("models", {"models": ("a\n",)}),
    ("models", {"models": ("x" * 257,)}),
    ("models", {"models": tuple(map(str, range(51)))}),
    ("scopes", {"scopes": ()}),
    ("scopes", {"scopes": ("operator",)}),
]


async def test_bad_fields_are_named(house: House) -> None:
    for param, fields in BAD:
        with pytest.raises(InvalidRequest) as failure:
            await house.key(**fields)
        assert (failure.value.param, fields) == (param, fields)


async def test_the_most_that_fields_may_hold(house: House) -> None:
    models = tuple(f"{number:0256}" for number in range(50))
    key = await house.key(name="é" * 200, models=(*models[1:], models[0]), scopes=("admin", "admin", "model.read"))
    assert (key.name, len(key.models), key.scopes) == ("é" * 200, 50, ("admin", "model.read"))
    assert (await house.who(key)).models == (*models[1:], models[0])


async def test_the_operators_scope_is_the_operators(house: House) -> None:
    await house.organisation("op", operator=True)
    assert "operator" in (await house.who(await house.key("op", scopes=("admin", "operator")))).scopes


MALFORMED = [
    "",
    "sk-",
    "Bearer x",
    "sk-" + "é" * 43,
    "sk-" + "a" * 42,
    "sk-" + "a" * 44,
    "sk-" + "a" * 43 + "\n",
    "sk-" + "." * 43,
    "\x00",
    "sk-" + "a" * 43,
    "ses-" + "a" * 43,
    "x" * 1_000_000,
]


async def test_what_is_no_key_is_refused(keys: Keys) -> None:
    for secret in MALFORMED:
        with pytest.raises(InvalidApiKey) as failure:
            await keys.authenticate(secret)
        assert (failure.value.wire_code, failure.value.message) == ("invalid_api_key", "Incorrect API key provided.")


async def test_many_at_once(house: House) -> None:
    made = await asyncio.gather(*(house.key(name=str(number)) for number in range(30)))
    who = await asyncio.gather(*(house.who(key) for key in made))
    assert [principal.key_id for principal in who] == [key.id for key in made]


async def test_the_last_use_is_known_to_the_minute(house: House, keys: Keys) -> None:
    key, unused = await house.key(), await house.key()

    async def last_used() -> dict[str, float | None]:
        return {item.id: item.last_used for item in await keys.keys(a.KeyQuery(tenant="a"))}

    start = house.clock.now
    for after, known in ((0.0, start), (59.0, start), (65.0, start + 65)):
        house.clock.now = start + after
        await house.who(key)
        async with asyncio.timeout(30):
            while (await last_used())[key.id] != known:
                await asyncio.sleep(0.01)
    assert (await last_used())[unused.id] is None
