"""Both ports over HTTP: POST /accounts/{method} and /sessions/{method}."""

from starlette.applications import Starlette
from starlette.routing import Mount

from services.common.http import serve_port
from services.common.ports import Accounts, Sessions


def create_app(accounts: Accounts, sessions: Sessions) -> Starlette:
    return Starlette(
        routes=[
            Mount("/accounts", serve_port(Accounts, accounts)),
            Mount("/sessions", serve_port(Sessions, sessions)),
        ]
    )
