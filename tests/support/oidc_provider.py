"""A small but real OIDC provider on loopback: discovery, a sign-in page, PKCE, signed tokens, rotating keys, userinfo.

Its `faults` are what a provider, or somebody between, could do to us.
"""

import asyncio
import base64
import hashlib
import hmac
import html
import json
import secrets
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

FAULTS = (
    "nonce", "audience", "azp", "issuer", "expired", "early", "unsigned", "hmac", "foreign_key", "no_id_token", "no_email",
    "other_userinfo", "moved", "huge", "slow", "nonsense", "down", "http_endpoints", "foreign_metadata",
    "foreign_answer",
)  # fmt: skip
"""Names for `OidcProvider.faults`."""


@dataclass
class Person:
    email: str = "ada@example.com"
    password: str = "correct horse"
    subject: str = "ada-1"
    name: str = "Ada"
    verified: bool = True
    groups: list[str] = field(default_factory=list)

    def claims(self) -> dict[str, Any]:
        return {"email": self.email, "email_verified": self.verified, "name": self.name, "groups": self.groups}


@dataclass
class Granted:
    person: Person
    query: dict[str, str]


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Any:
        yield


class OidcProvider:
    """`with OidcProvider() as provider:` serves until the block ends."""

    client_id = "antiphon-test"
    client_secret = "provider-secret: with + and %"

    def __init__(self) -> None:
        self.people = [Person()]
        self.faults: set[str] = set()
        self.claims_in = "id_token"
        """Or "userinfo": the id_token then names the person alone."""
        self.client_auth = ["client_secret_basic"]
        self.requests: list[str] = []
        self._codes: dict[str, Granted] = {}
        self._access: dict[str, Person] = {}
        self.key = self._new_key()
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._listener.bind(("127.0.0.1", 0))
        self.issuer = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        routes = [
            Route("/.well-known/openid-configuration", self._discovery),
            Route("/authorize", self._authorize),
            Route("/login", self._login, methods=["POST"]),
            Route("/token", self._token, methods=["POST"]),
            Route("/jwks", self._jwks),
            Route("/userinfo", self._userinfo),
        ]
        self._server = _Server(uvicorn.Config(Starlette(routes=routes), log_level="warning", lifespan="off"))
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)

    def __enter__(self) -> "OidcProvider":
        self._thread.start()
        began = time.monotonic()
        while not self._server.started:
            assert time.monotonic() - began < 20, "the provider did not start"
            time.sleep(0.01)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(20)
        self._listener.close()

    def settings(self) -> dict[str, str]:
        """For a server: `ANTIPHON_…` without the prefix."""
        return {
            "OIDC_ISSUER": self.issuer,
            "OIDC_CLIENT_ID": self.client_id,
            "OIDC_CLIENT_SECRET": self.client_secret,
            "OIDC_NAME": "Test provider",
        }

    def rotate(self) -> None:
        """From now on the former key is neither used nor published."""
        self.key = self._new_key()

    def _new_key(self) -> RSAKey:
        return RSAKey.generate_key(2048, {"kid": secrets.token_hex(4), "use": "sig", "alg": "RS256"})

    async def _fault(self, request: Request) -> Response | None:
        """What goes wrong with every answer to the server, as opposed to the browser."""
        self.requests.append(request.url.path)
        if "slow" in self.faults:
            await asyncio.sleep(30)
        if "down" in self.faults:
            return Response("down", 503)
        if "nonsense" in self.faults:
            return Response(b"\xff<html>", media_type="application/json")
        if "huge" in self.faults:
            return JSONResponse({"filler": "x" * (2 << 20)})
        if "moved" in self.faults and "moved" not in request.query_params:
            return RedirectResponse(f"{request.url.path}?moved=1", 307)
        return None

    async def _discovery(self, request: Request) -> Response:
        if fault := await self._fault(request):
            return fault
        base = "http://idp.example" if "http_endpoints" in self.faults else self.issuer
        return JSONResponse(
            {
                "issuer": "https://evil.example" if "foreign_metadata" in self.faults else self.issuer,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "jwks_uri": f"{base}/jwks",
                "userinfo_endpoint": f"{base}/userinfo",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": self.client_auth,
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        if query.get("client_id") != self.client_id or query.get("response_type") != "code":
            return Response("unknown client or response type", 400)
        if query.get("code_challenge_method") != "S256" or len(query.get("code_challenge", "")) != 43:
            return Response("PKCE with S256 is required", 400)
        if not (query.get("state") and query.get("nonce") and "openid" in query.get("scope", "").split()):
            return Response("state, nonce and the scope openid are required", 400)
        hidden = "".join(
            f'<input type="hidden" name="{html.escape(k)}" value="{html.escape(v)}">' for k, v in query.items()
        )
        return HTMLResponse(
            f'<!doctype html><title>Test provider</title><form method="post" action="/login">{hidden}'
            '<label>E-mail <input name="email"></label><label>Password <input name="password" type="password"></label>'
            '<button name="decision" value="allow">Sign in</button><button name="decision" value="deny">Deny</button></form>'
        )

    async def _login(self, request: Request) -> Response:
        form = {k: str(v) for k, v in _form(await request.body()).items()}
        query = {k: v for k, v in form.items() if k not in ("email", "password", "decision")}
        back = {
            "state": query["state"],
            "iss": "https://evil.example" if "foreign_answer" in self.faults else self.issuer,
        }
        if form.get("decision") == "deny":
            return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back | {'error': 'access_denied'})}", 303)
        person = next((p for p in self.people if p.email == form["email"] and p.password == form["password"]), None)
        if person is None:
            return Response("wrong e-mail or password", 401)
        code = secrets.token_urlsafe(16)
        self._codes[code] = Granted(person, query)
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(back | {'code': code})}", 303)

    async def _token(self, request: Request) -> Response:
        if fault := await self._fault(request):
            return fault
        form = _form(await request.body())
        if not self._is_client(request, form):
            return JSONResponse({"error": "invalid_client"}, 401)
        granted = self._codes.pop(form.get("code", ""), None)
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            granted is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != granted.query["redirect_uri"]
            or _base64(challenge).decode() != granted.query["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        access = secrets.token_urlsafe(16)
        self._access[access] = granted.person
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": 60}
        return JSONResponse(answer if "no_id_token" in self.faults else answer | {"id_token": self._id_token(granted)})

    def _is_client(self, request: Request, form: dict[str, str]) -> bool:
        if self.client_auth == ["client_secret_post"]:
            return (form.get("client_id"), form.get("client_secret")) == (self.client_id, self.client_secret)
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        return request.headers.get("authorization") == f"Basic {basic}"

    def _id_token(self, granted: Granted) -> str:
        now, faults = int(time.time()), self.faults
        claims = {
            "iss": "https://evil.example" if "issuer" in faults else self.issuer,
            "sub": granted.person.subject,
            "aud": ["somebody-else"] if "audience" in faults else [self.client_id],
            "iat": now + 7200 if "early" in faults else now - 7200 if "expired" in faults else now,
            "exp": now - 3600 if "expired" in faults else now + 300,
            "nonce": "another" if "nonce" in faults else granted.query["nonce"],
        }
        if "azp" in faults:
            claims |= {"azp": "somebody-else"}
        if self.claims_in == "id_token":
            claims |= granted.person.claims()
        if "no_email" in faults:
            claims.pop("email", None)
        return self._signed(claims)

    def _signed(self, claims: dict[str, Any]) -> str:
        if "unsigned" in self.faults:
            return _by_hand({"alg": "none"}, claims, b"")
        if "hmac" in self.faults:  # signed with what everybody can see
            return _by_hand({"alg": "HS256", "kid": self.key.kid}, claims, self.key.as_pem(private=False))
        key = self._new_key() if "foreign_key" in self.faults else self.key
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, key)

    async def _jwks(self, request: Request) -> Response:
        if fault := await self._fault(request):
            return fault
        unknown = {"kty": "FUTURE", "kid": "f"}
        return JSONResponse({"keys": [unknown, self.key.as_dict(private=False)]})

    async def _userinfo(self, request: Request) -> Response:
        if fault := await self._fault(request):
            return fault
        person = self._access.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if person is None:
            return JSONResponse({"error": "invalid_token"}, 401)
        claims = {"sub": "eve" if "other_userinfo" in self.faults else person.subject} | person.claims()
        if "no_email" in self.faults:
            claims.pop("email")
        return JSONResponse(claims)


def _by_hand(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """A token that no library makes: unsigned where there is no secret, else with HMAC."""
    signed = b".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
    signature = hmac.new(secret, signed, hashlib.sha256).digest() if secret else b""
    return b".".join((signed, _base64(signature))).decode()


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _form(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode(), keep_blank_values=True))
