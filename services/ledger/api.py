"""The port over HTTP: POST /ledger/{method}."""

from starlette.applications import Starlette
from starlette.routing import Mount

from services.common.http import serve_port
from services.common.usage_ports import Ledger


def create_app(ledger: Ledger) -> Starlette:
    return Starlette(routes=[Mount("/ledger", serve_port(Ledger, ledger))])
