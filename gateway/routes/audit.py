"""The organisation's audit log."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from gateway.ports import GatewayPorts
from gateway.routes.access import Access, needs
from gateway.routes.shapes import IdFilter, listed
from services.common.account_messages import AuditQuery, Principal


def router(ports: GatewayPorts, prefix: str, access: Access) -> APIRouter:
    routes = APIRouter(prefix=f"{prefix}/organization", tags=["organization"])
    Admin = Annotated[Principal, Depends(needs(access, "admin", "admin"))]  # noqa: N806 (a type)

    @routes.get("/audit_logs")
    async def audit_logs(
        who: Admin, before: Annotated[int | None, Query(ge=0, lt=2**63)] = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50, actor: IdFilter = None, action: IdFilter = None,
    ) -> dict[str, Any]:  # fmt: skip
        query = AuditQuery(tenant=who.tenant, before=before, actor=actor, action=action, limit=limit)
        return listed(await ports.audit.entries(query))

    return routes
