"""Projects, to which keys may belong, and service accounts, which own keys that no person owns."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from services.accounts import text
from services.accounts.deeds import changed, deed
from services.accounts.project_store import ProjectQueries, ServiceAccountQueries
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import InvalidRequest, NotFound
from services.common.texts import new_id

Clock = Callable[[], float]


class ProjectService:
    def __init__(self, store: AccountStore, clock: Clock = time.time):
        self._store = store
        self._clock = clock

    async def create_project(self, request: a.NewProject) -> a.Project:
        project = a.Project(
            id=new_id("proj"), tenant=request.tenant, name=text.name(request.name), created=self._clock()
        )
        async with self._store.writing(ProjectQueries) as db:
            await _check_organisation(db, project.tenant)
            await db.add(project)
            ref = a.Ref(project.tenant, project.id, request.actor)
            await db.note(deed(ref, "project.create", project.created))
        return project

    async def projects(self, tenant: str) -> Sequence[a.Project]:
        async with self._store.reading(ProjectQueries) as db:
            return await db.of(tenant)

    async def update_project(self, patch: a.ProjectPatch) -> a.Project:
        wanted: dict[str, Any] = {}
        if patch.name is not None:
            wanted["name"] = text.name(patch.name)
        if patch.archived is not None:
            wanted["archived"] = patch.archived
        async with self._store.writing(ProjectQueries) as db:
            project = await _project(db, patch.tenant, patch.id, lock=True)
            changes, told = changed(project, wanted)
            if changes:
                await db.change(project.id, changes)
                ref = a.Ref(patch.tenant, patch.id, patch.actor)
                await db.note(deed(ref, "project.update", self._clock(), told))
        return msgspec.structs.replace(project, **changes)


class ServiceAccountService:
    def __init__(self, store: AccountStore, clock: Clock = time.time):
        self._store = store
        self._clock = clock

    async def create_service_account(self, request: a.NewServiceAccount) -> a.ServiceAccount:
        account = a.ServiceAccount(
            id=new_id("svc"),
            tenant=request.tenant,
            name=text.name(request.name),
            project=request.project,
            created=self._clock(),
        )
        async with self._store.writing(ServiceAccountQueries) as db:
            await _check_organisation(db, account.tenant)
            if account.project and (await _project(db, account.tenant, account.project, param="project")).archived:
                raise InvalidRequest("The project is archived.", param="project")
            await db.add_account(account)
            ref = a.Ref(account.tenant, account.id, request.actor)
            await db.note(deed(ref, "service_account.create", account.created, {"project": account.project}))
        return account

    async def service_accounts(self, tenant: str) -> Sequence[a.ServiceAccount]:
        async with self._store.reading(ServiceAccountQueries) as db:
            return await db.accounts_of(tenant)

    async def remove_service_account(self, ref: a.Ref) -> None:
        async with self._store.writing(ServiceAccountQueries) as db:
            if not await db.remove_account(ref.tenant, ref.id):
                raise NotFound("There is no such service account.")
            await db.note(deed(ref, "service_account.remove", self._clock()))


async def _check_organisation(db: ProjectQueries, tenant: str) -> None:
    if not await db.organisation_exists(tenant):
        raise NotFound("There is no such organisation.")


async def _project(
    db: ProjectQueries, tenant: str, id: str, *, lock: bool = False, param: str | None = None
) -> a.Project:
    found = await db.get(tenant, id, lock=lock)
    if found is None:
        raise NotFound("There is no such project.", param=param)
    return found
