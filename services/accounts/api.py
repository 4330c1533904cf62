"""Every port over HTTP: POST /{port}/{method}, as in /keys/authenticate and /members/update_member."""

from typing import get_type_hints

from starlette.applications import Starlette
from starlette.routing import Mount

from services.accounts.ports import AccountPorts
from services.common.http import serve_port


def create_app(ports: AccountPorts) -> Starlette:
    kinds = get_type_hints(AccountPorts)
    return Starlette(routes=[Mount(f"/{name}", serve_port(kinds[name], getattr(ports, name))) for name in kinds])
