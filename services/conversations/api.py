"""Both ports over HTTP: POST /conversations/{method} and /messages/{method}."""

from starlette.applications import Starlette
from starlette.routing import Mount

from services.common.http import serve_port
from services.common.ports import Conversations, Messages


def create_app(conversations: Conversations, messages: Messages) -> Starlette:
    return Starlette(
        routes=[
            Mount("/conversations", serve_port(Conversations, conversations)),
            Mount("/messages", serve_port(Messages, messages)),
        ]
    )
