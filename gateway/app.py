"""create_app(ports): the edge, its routes and its handlers."""

from pathlib import Path
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from gateway.dialects.chat_request import ChatRequest
from gateway.dialects.completions import CompletionRequest
from gateway.dialects.embeddings import EmbeddingsBody
from gateway.dialects.wire import Wire, error_of
from gateway.edge import Edge
from gateway.exchange import error_headers
from gateway.hot import HotRoutes
from gateway.ports import GatewayPorts
from gateway.routes import admin, conversations, health, models, turns, web
from gateway.settings import GatewaySettings
from services.common.errors import AntiphonError, InternalError, InvalidRequest, MethodNotAllowed, NotFound
from services.common.telemetry import log

HOT_BODIES: dict[str, tuple[type[Wire], str]] = {
    "/v1/chat/completions": (ChatRequest, "Create a chat completion, streamed or whole"),
    "/v1/completions": (CompletionRequest, "Complete a prompt, streamed or whole"),
    "/v1/embeddings": (EmbeddingsBody, "Embed texts"),
}


def create_app(ports: GatewayPorts, settings: GatewaySettings, web_dist: Path) -> ASGIApp:
    """web_dist: the built chat page; its absence is said on the page, and costs the API nothing."""
    app = FastAPI(
        title="Antiphon", version="0.1.0", docs_url=None, redoc_url=None, openapi_url="/openapi.json",
        redirect_slashes=False,  # it would send a client, and its key, to whatever the Host header says, by plain HTTP
    )  # fmt: skip
    for router in (
        models.router(ports), health.router(ports), *admin.routers(ports), conversations.router(ports),
        turns.router(ports, settings), web.router(web_dist),
    ):  # fmt: skip
        app.include_router(router)
    app.add_exception_handler(AntiphonError, _expected)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    hot = HotRoutes(ports.turns, ports.embeddings, settings)
    handlers = {"/v1/chat/completions": hot.chat, "/v1/completions": hot.completions, "/v1/embeddings": hot.embeddings}
    return Edge(app, handlers, ports.auth, ports.idempotent, settings)


def _response(error: AntiphonError) -> Response:
    headers = {k.decode(): v.decode() for k, v in error_headers(error)}
    return Response(msgspec.json.encode(error.body()), error.status, headers, media_type="application/json")


async def _expected(_: Request, error: Exception) -> Response:
    assert isinstance(error, AntiphonError)
    return _response(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = [e | {"loc": e["loc"][1:]} for e in error.errors()]
    return _response(error_of(errors))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refusal = MethodNotAllowed(f"{request.method} is not allowed here.")
        refusal.allowed = (error.headers or {}).get("Allow", "GET")
        return _response(refusal)
    if error.status_code == 404:
        return _response(NotFound(f"There is nothing at {request.method} {request.url.path}."))
    return _response(InvalidRequest(str(error.detail)))


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("request_failed", path=request.url.path, exc_info=error)
    return _response(InternalError("The server failed; its log says why."))


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's own document, and the hot routes, which are not FastAPI's."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for path, (body, summary) in HOT_BODIES.items():
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[body.__name__] = schema
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
        document["paths"][path] = {"post": _operation(summary, content)}
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}]
    app.openapi_schema = document
    return document


def _operation(summary: str, content: dict[str, Any]) -> dict[str, Any]:
    responses = {"200": {"description": "The answer: JSON, or SSE where stream is true"}}
    responses |= {str(s): {"description": "An error"} for s in (400, 401, 404, 413, 503)}
    return {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": responses}
