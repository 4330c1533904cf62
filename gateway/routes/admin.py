"""Every route of docs/admin-api.md."""

from fastapi import APIRouter

from gateway.ports import GatewayPorts
from gateway.routes import (
    account,
    api_keys,
    audit,
    members,
    oidc,
    operator,
    organisation,
    projects,
    session,
    signup,
    usage,
)
from gateway.routes.access import api_key, web_session


def routers(ports: GatewayPorts) -> list[APIRouter]:
    """The web app's own, and those that programs have, too: for each the same routes, behind another door."""
    own = [made.router(ports) for made in (session, signup, account, oidc)]
    doors = (("/v1", api_key(ports.auth)), ("/api", web_session(ports.auth)))
    shared = (organisation, members, projects, api_keys, audit, usage, operator)
    return own + [made.router(ports, prefix, access) for prefix, access in doors for made in shared]
