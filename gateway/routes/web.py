"""The chat page: static files, held in memory, in the smallest encoding that the browser takes."""

import mimetypes
from pathlib import Path

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from services.common.errors import Overloaded

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_SECURITY = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))


class Asset(Struct, frozen=True):
    media_type: str
    bodies: dict[str, bytes]
    """By content encoding; "" is the file as it is."""


def router(dist: Path) -> APIRouter:
    routes = APIRouter(include_in_schema=False)
    assets = _load(dist)

    @routes.get("/")
    @routes.get("/c/{conversation_id}")
    @routes.get("/settings")
    @routes.get("/settings/{tab}")
    @routes.get("/invite/{token}")
    async def page(request: Request) -> Response:
        if "index.html" not in assets:
            raise Overloaded("The chat page has not been built. Run `make web`.")
        return _respond(assets["index.html"], request, "no-cache")

    async def file(request: Request) -> Response:
        path = request.url.path.lstrip("/")
        # Names under assets/ hold a hash of the content.
        lasting = path.startswith("assets/")
        return _respond(assets[path], request, "public, max-age=31536000, immutable" if lasting else "no-cache")

    for path in assets:
        routes.add_api_route(f"/{path}", file, methods=["GET"])
    return routes


def _respond(asset: Asset, request: Request, cache: str) -> Response:
    accepted = request.headers.get("accept-encoding", "")
    encoding = next((e for e, _ in _ENCODINGS if e in accepted and e in asset.bodies), "")
    headers = _SECURITY | {"cache-control": cache, "vary": "accept-encoding"}
    if encoding:
        headers["content-encoding"] = encoding
    return Response(asset.bodies[encoding], headers=headers, media_type=asset.media_type)


def _load(dist: Path) -> dict[str, Asset]:
    found = {}
    suffixes = tuple(suffix for _, suffix in _ENCODINGS)
    for path in sorted(dist.rglob("*")):
        if not path.is_file() or path.suffix in suffixes:
            continue
        bodies = {"": path.read_bytes()}
        for encoding, suffix in _ENCODINGS:
            packed = path.with_name(path.name + suffix)
            if packed.is_file():
                bodies[encoding] = packed.read_bytes()
        media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        found[path.relative_to(dist).as_posix()] = Asset(media_type, bodies)
    return found
