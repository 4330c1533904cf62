"""What `Projects` and `ServiceAccounts` promise, wherever they run."""

from collections.abc import AsyncIterator

import pytest

from services.common import account_messages as a
from services.common.account_ports import Projects, ServiceAccounts
from services.common.errors import InvalidApiKey, InvalidRequest, NotFound
from tests.support.accounts import House, opened


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        await house.organisation("a")
        await house.organisation("b")
        yield house


@pytest.fixture
def projects(house: House) -> Projects:
    return house.ports.projects


@pytest.fixture
def accounts(house: House) -> ServiceAccounts:
    return house.ports.service_accounts


async def test_projects_are_listed_oldest_first(house: House, projects: Projects) -> None:
    made = []
    for name in ("one", "two", "three"):
        made.append(await projects.create_project(a.NewProject(tenant="a", name=name, actor="u")))
        house.clock.now += 1
    await projects.create_project(a.NewProject(tenant="b", name="theirs"))
    assert list(await projects.projects("a")) == made
    assert [(p.tenant, p.name, p.archived) for p in made[:1]] == [("a", "one", False)]
    assert await house.last() == ("project.create", made[-1].id, "u")
    assert tuple(await projects.projects("\x00")) == ()


async def test_a_project_is_renamed_and_archived(house: House, projects: Projects) -> None:
    made = await projects.create_project(a.NewProject(tenant="a", name="p"))
    changed = await projects.update_project(a.ProjectPatch(tenant="a", id=made.id, name="q", archived=True, actor="u"))
    assert (changed.name, changed.archived) == ("q", True)
    assert list(await projects.projects("a")) == [changed]
    assert await house.last() == ("project.update", made.id, "u")
    before = await house.told()
    await projects.update_project(a.ProjectPatch(tenant="a", id=made.id, archived=True))
    assert await house.told() == before
    back = await projects.update_project(a.ProjectPatch(tenant="a", id=made.id, archived=False))
    assert (back.name, back.archived) == ("q", False)


async def test_service_accounts_come_and_go(house: House, projects: Projects, accounts: ServiceAccounts) -> None:
    project = await projects.create_project(a.NewProject(tenant="a", name="p"))
    one = await accounts.create_service_account(a.NewServiceAccount(tenant="a", name="one", actor="u"))
    assert await house.last() == ("service_account.create", one.id, "u")
    house.clock.now += 1
    two = await accounts.create_service_account(a.NewServiceAccount(tenant="a", name="two", project=project.id))
    assert list(await accounts.service_accounts("a")) == [one, two]
    assert (two.project, tuple(await accounts.service_accounts("b"))) == (project.id, ())
    key, kept = await house.key(owner=one.id), await house.key(owner=two.id)
    token = await house.ports.sessions.open(a.NewSession(tenant="a", key_id=key.id))
    await accounts.remove_service_account(a.Ref("a", one.id, "u"))
    assert await house.last() == ("service_account.remove", one.id, "u")
    assert list(await accounts.service_accounts("a")) == [two]
    with pytest.raises(InvalidApiKey):
        await house.who(key)
    with pytest.raises(InvalidApiKey):
        await house.ports.sessions.resolve(token)
    await house.who(kept)


async def test_anothers_are_missing(house: House, projects: Projects, accounts: ServiceAccounts) -> None:
    project = await projects.create_project(a.NewProject(tenant="a", name="p"))
    account = await accounts.create_service_account(a.NewServiceAccount(tenant="a", name="s"))
    before = await house.told()
    for tenant, id in (("b", project.id), ("a", "proj_unknown"), ("a", f"{project.id}\x00"), ("\x00", project.id)):
        with pytest.raises(NotFound):
            await projects.update_project(a.ProjectPatch(tenant=tenant, id=id, archived=True))
    for tenant, id in (("b", account.id), ("a", "svc_unknown"), ("a", "\x00"), ("a", project.id)):
        with pytest.raises(NotFound):
            await accounts.remove_service_account(a.Ref(tenant, id))
    for tenant, project_id in (("b", project.id), ("a", "proj_unknown"), ("a", "\x00"), ("nobody", "")):
        with pytest.raises(NotFound):
            await accounts.create_service_account(a.NewServiceAccount(tenant=tenant, name="s", project=project_id))
    with pytest.raises(NotFound):
        await projects.create_project(a.NewProject(tenant="nobody", name="p"))
    assert await house.told() == before


async def test_bad_fields_are_named(house: House, projects: Projects, accounts: ServiceAccounts) -> None:
    project = await projects.create_project(a.NewProject(tenant="a", name="p"))
    for name in ("", " ", "x" * 201, "a\x00", "a\nb"):
        for attempt in (
            projects.create_project(a.NewProject(tenant="a", name=name)),
            projects.update_project(a.ProjectPatch(tenant="a", id=project.id, name=name)),
            accounts.create_service_account(a.NewServiceAccount(tenant="a", name=name)),
        ):
            with pytest.raises(InvalidRequest) as failure:
                await attempt
            assert failure.value.param == "name"
    await projects.update_project(a.ProjectPatch(tenant="a", id=project.id, archived=True))
    with pytest.raises(InvalidRequest) as failure:
        await accounts.create_service_account(a.NewServiceAccount(tenant="a", name="s", project=project.id))
    assert failure.value.param == "project"
