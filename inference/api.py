"""Any engine over HTTP."""

from starlette.applications import Starlette

from services.common.http import serve_port
from services.common.ports import Engine


def create_app(engine: Engine) -> Starlette:
    return serve_port(Engine, engine)
