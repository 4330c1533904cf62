"""Projects, which group keys, and service accounts, which own keys that no person owns."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.responses import Response

from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import Access, needs
from gateway.routes.shapes import Id, IdField, Name, listed, ref, shape
from services.common.account_messages import NewProject, NewServiceAccount, Principal, ProjectPatch


class CreateProject(Wire):
    name: Name


class PatchProject(Wire):
    name: Name | None = None
    archived: bool | None = None


class CreateServiceAccount(Wire):
    name: Name
    project: IdField = ""


def router(ports: GatewayPorts, prefix: str, access: Access) -> APIRouter:
    routes = APIRouter(prefix=f"{prefix}/organization", tags=["organization"])
    Caller = Annotated[Principal, Depends(access)]  # noqa: N806 (a type)
    Admin = Annotated[Principal, Depends(needs(access, "admin", "admin"))]  # noqa: N806

    @routes.get("/projects")
    async def projects(who: Caller) -> dict[str, Any]:
        return listed(await ports.projects.projects(who.tenant))

    @routes.post("/projects", status_code=201)
    async def create_project(body: CreateProject, who: Admin) -> dict[str, Any]:
        asked = NewProject(tenant=who.tenant, name=body.name, actor=who.actor)
        return shape(await ports.projects.create_project(asked))

    @routes.patch("/projects/{project_id}")
    async def patch_project(project_id: Id, body: PatchProject, who: Admin) -> dict[str, Any]:
        patch = ProjectPatch(tenant=who.tenant, id=project_id, name=body.name, archived=body.archived, actor=who.actor)
        return shape(await ports.projects.update_project(patch))

    @routes.get("/service_accounts")
    async def service_accounts(who: Admin) -> dict[str, Any]:
        return listed(await ports.service_accounts.service_accounts(who.tenant))

    @routes.post("/service_accounts", status_code=201)
    async def create_service_account(body: CreateServiceAccount, who: Admin) -> dict[str, Any]:
        asked = NewServiceAccount(tenant=who.tenant, name=body.name, project=body.project, actor=who.actor)
        return shape(await ports.service_accounts.create_service_account(asked))

    @routes.delete("/service_accounts/{service_account_id}", status_code=204)
    async def remove_service_account(service_account_id: Id, who: Admin) -> Response:
        await ports.service_accounts.remove_service_account(ref(who, service_account_id))
        return Response(status_code=204)

    return routes
