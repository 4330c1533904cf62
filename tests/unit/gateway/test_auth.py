"""Who is asking: keys, cookies, origins and names of the host, well made or not."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.auth import (
    COOKIE,
    LOCAL,
    Authenticator,
    has_role,
    is_admin,
    require_loopback_host,
    require_role,
    require_same_origin,
    require_scope,
    session_token,
)
from inference.engines.simulated import SimulatedEngine
from services.common.account_messages import ROLES, ApiKey, KeyQuery, NewKey, NewSession, Principal, Ref, Role
from services.common.errors import Forbidden, InvalidApiKey, Misdirected, MissingScope, NotSignedIn
from tests.unit.gateway.driving import CHAT, gateway

quick = settings(deadline=None)
HEADER = st.text(st.characters(max_codepoint=255), max_size=40)


KNOWN = Principal(tenant="tenant", key_id="key_1")
SIGNED_IN = Principal(tenant="tenant", user_id="user_1")


class OneKey:
    """Keys and sessions in which one secret is good. What is asked of them is kept."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def authenticate(self, secret: str) -> Principal:
        self.asked.append(secret)
        if secret != "sk-good":
            raise InvalidApiKey("Incorrect API key provided.")
        return KNOWN

    async def resolve(self, token: str) -> Principal:
        self.asked.append(token)
        if token != "ses-good":
            raise NotSignedIn("The session is unknown or has ended.")
        return SIGNED_IN

    async def create_key(self, request: NewKey) -> ApiKey:
        raise AssertionError

    async def keys(self, query: KeyQuery) -> list[ApiKey]:
        raise AssertionError

    async def revoke_key(self, ref: Ref) -> None:
        raise AssertionError

    async def open(self, session: NewSession) -> str:
        raise AssertionError

    async def close(self, token: str) -> None:
        raise AssertionError

    async def close_all(self, user: Ref) -> None:
        raise AssertionError


def authenticator(open_to_all: bool = False) -> Authenticator:
    return Authenticator(OneKey(), OneKey(), open_to_all=open_to_all)


@pytest.mark.parametrize("given", [b"Bearer sk-good", b"bearer sk-good", b"BEARER  sk-good ", b"Bearer \tsk-good"])
async def test_a_bearer_key_is_taken_whatever_the_case_and_space_around_it(given: bytes) -> None:
    assert await authenticator().by_key(given) == KNOWN


@pytest.mark.parametrize(
    "given",
    [b"", b"Bearer", b"Bearer ", b"sk-good", b"Basic sk-good", b"Bearer sk-good x", b"Bearersk-good", b"Bearer \xff"],
)
async def test_anything_else_is_no_key(given: bytes) -> None:
    with pytest.raises(InvalidApiKey):
        await authenticator().by_key(given)


@quick
@given(st.binary(max_size=40) | st.binary(max_size=20).map(b"Bearer ".__add__))
async def test_no_header_does_more_than_fail_to_be_a_key(given: bytes) -> None:
    with pytest.raises(InvalidApiKey):
        await authenticator().by_key(given)


@pytest.mark.parametrize("cookies", [f"{COOKIE}=ses-good", f"a=b; {COOKIE}=ses-good; c=d", f'{COOKIE}="ses-good"'])
async def test_a_session_is_found_among_other_cookies(cookies: str) -> None:
    assert await authenticator().by_cookie(cookies) == SIGNED_IN


@quick
@given(HEADER | st.lists(HEADER, max_size=3).map("; ".join) | HEADER.map(f"{COOKIE}=".__add__))
@example("antiphon_session")
@example("=; ;;=,\x00\x01")
@example(f"{COOKIE}=ses-good; a[]=b")
@example("\xff\xfe=1; expires=Thu, 01 Jan 1970 00:00:00 GMT")
async def test_malformed_cookies_are_no_session_and_no_error(cookies: str) -> None:
    assert isinstance(session_token(cookies), str)
    if session_token(cookies) != "ses-good":
        with pytest.raises(NotSignedIn):
            await authenticator().by_cookie(cookies)


async def test_every_key_that_could_be_one_is_asked_for_whatever_it_looks_like() -> None:
    """Nothing here answers sooner for one that looks wrong: the time would tell."""
    keys = OneKey()
    auth = Authenticator(keys, OneKey())
    given = ["sk-good", "x", "sk-" + "A" * 43, "\xff", "sk-good\x00"]
    for secret in given:
        with suppress(InvalidApiKey):
            await auth.by_key(b"Bearer " + secret.encode("latin-1"))
    assert keys.asked == given


async def test_a_server_without_keys_knows_one_owner() -> None:
    for who in (await authenticator(open_to_all=True).by_key(b""), await authenticator(open_to_all=True).by_cookie("")):
        assert who == LOCAL
        assert (who.tenant, who.space, who.role, who.tier) == ("local", "local", "owner", "enterprise")
        assert {"admin", "operator", "conversations", "model.request"} < set(who.scopes)


@pytest.mark.parametrize("role", ROLES)
def test_a_role_holds_those_below_it(role: Role) -> None:
    who = Principal(tenant="t", role=role)
    for asked in ROLES:
        enough = ROLES.index(asked) <= ROLES.index(role)
        assert has_role(who, asked) is enough
        if not enough:
            with pytest.raises(Forbidden, match=asked):
                require_role(who, asked)
        else:
            require_role(who, asked)


def test_a_missing_scope_is_named_and_its_bearer_too() -> None:
    require_scope(Principal(tenant="t"), "model.request")
    with pytest.raises(MissingScope, match=r"`admin`.*API key"):
        require_scope(Principal(tenant="t", key_id="key_1"), "admin")
    with pytest.raises(MissingScope, match=r"`operator`.*session"):
        require_scope(Principal(tenant="t"), "operator")


@pytest.mark.parametrize(
    ("role", "scopes", "expected"),
    [("owner", ("admin",), True), ("admin", ("admin",), True), ("member", ("admin",), False), ("owner", ("model.read",), False)],
)  # fmt: skip
def test_an_admin_has_the_role_and_the_scope(role: Role, scopes: tuple[Any, ...], expected: bool) -> None:
    assert is_admin(Principal(tenant="t", role=role, scopes=scopes)) is expected


@pytest.mark.parametrize(
    ("origin", "host"),
    [(None, "a.example"), (None, None), ("http://a.example", "a.example"), ("https://a.example:8000", "a.example:8000"),
     ("http://[::1]:8000", "[::1]:8000")],
)  # fmt: skip
def test_the_pages_own_origin_and_programs_without_one_may_write(origin: str | None, host: str | None) -> None:
    require_same_origin(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [("http://evil.example", "a.example"), ("null", "a.example"), ("null", None), ("null", ""), ("", "a.example"),
     ("http://a.example:81", "a.example"), ("http://a.example.evil", "a.example"), ("a.example", "a.example"),
     ("http://a.example@evil.example", "a.example"), ("http://[", "a.example"), ("http://[", None),
     ("file://", None), ("http://\u2100", "a.example")],
)  # fmt: skip
def test_another_sites_page_may_not_write(origin: str, host: str | None) -> None:
    with pytest.raises(Forbidden):
        require_same_origin(origin, host)


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:1", "[::1]", "[::1]:8000"])
def test_loopback_has_these_names(host: str) -> None:
    require_loopback_host(host)


@pytest.mark.parametrize(
    "host",
    [None, "", ":", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "[", "[::1", "[::2]", "0.0.0.0",
     "evil.example:127", "\u2100", "localhost.", "evil.example#localhost", "2130706433"],
)  # fmt: skip
def test_a_name_that_an_attackers_dns_gives_to_loopback_is_refused(host: str | None) -> None:
    with pytest.raises(Forbidden):
        require_loopback_host(host)


@quick
@given(HEADER, HEADER)
def test_no_origin_or_host_makes_more_than_a_refusal(origin: str, host: str) -> None:
    for check in (lambda: require_same_origin(origin, host), lambda: require_loopback_host(host)):
        with suppress(Forbidden):
            check()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 200), ({"host": "evil.example"}, 403), ({"host": "["}, 403), ({"origin": "http://evil.example"}, 403),
     ({"origin": "null"}, 403), ({"origin": "http://["}, 403), ({"origin": "http://localhost"}, 200)],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/conversations"])
async def test_a_server_without_keys_answers_its_own_page_and_programs_only(
    template: Path, tmp_path: Path, path: str, headers: dict[str, str], status: int
) -> None:
    async with gateway(template, tmp_path, SimulatedEngine(length=2), open_to_all=True) as edge:
        x = await edge.call(path, CHAT if path.startswith("/v1") else {}, authorization="", **headers).done()
    assert x.status == status + (path.startswith("/api") and status == 200)
    if status == 403:
        assert x.error["code"] == "forbidden"


async def test_signing_in_and_out_with_the_pages_cookie(template: Path, tmp_path: Path) -> None:
    async with gateway(template, tmp_path, SimulatedEngine()) as edge:
        wrong = await edge.call("/api/session", {"key": "sk-wrong"}).done()
        assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
        evil = await edge.call("/api/session", {"key": edge.key}, origin="http://evil.example").done()
        assert evil.status == 403
        into = await edge.call("/api/session", {"key": f" {edge.key} "}, origin="http://localhost").done()
        assert into.status == 204
        cookie = into.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        mine = {"cookie": cookie.split(";")[0]}
        for headers, status in [(mine, 200), ({"cookie": f"{COOKIE}=ses-x"}, 401), ({}, 401)]:
            x = await edge.call("/api/session", method="GET", **headers).done()
            assert x.status == status
        assert (await edge.call("/api/session", b"", method="DELETE", **mine).done()).status == 204
        assert (await edge.call("/api/session", method="GET", **mine).done()).status == 401


@pytest.mark.parametrize(("token", "status"), [("token", 303), ("wrong", 401), ("", 401), ("\xff", 401)])
async def test_the_printed_link_signs_in(template: Path, tmp_path: Path, token: str, status: int) -> None:
    async with gateway(template, tmp_path, SimulatedEngine()) as edge:
        x = await edge.call(f"/signin?token={token}", method="GET").done()
    assert x.status == status
    assert ("set-cookie" in x.headers) == (status == 303)


@pytest.mark.parametrize(
    ("here", "home", "served"),
    [("", "eu", True), ("eu", "", True), ("eu", "eu", True), ("eu", "us", False), ("eu", "moon", False)],
)
async def test_an_organisation_is_served_in_its_home_region_only(here: str, home: str, served: bool) -> None:
    class At:
        async def authenticate(self, secret: str) -> Principal:
            return Principal(tenant="t", region=home)

        async def resolve(self, token: str) -> Principal:
            return Principal(tenant="t", region=home)

    auth = Authenticator(At(), At(), region=here, hosts={"us": "us.example.org"})  # type: ignore[arg-type]
    for ask in (auth.by_key(b"Bearer sk-x"), auth.by_cookie("antiphon_session=x")):
        if served:
            assert (await ask).region == home
            continue
        with pytest.raises(Misdirected) as error:
            await ask
        assert (error.value.status, error.value.wire_code) == (421, "wrong_region")
        assert ("us.example.org" in error.value.message) == (home == "us")
