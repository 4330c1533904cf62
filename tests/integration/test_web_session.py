"""Signing in to the web app: by key, by link, and by nothing else."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.support.server import Server

OPEN = {"/api/signin", "/api/session", "/api/signup", "/api/invites/{token}"}
"""What somebody who is not signed in may ask."""


@pytest.fixture
def stranger(simulated_server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=simulated_server.url, timeout=30) as made:
        yield made


@contextmanager
def signed_in(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30) as browser:
        assert browser.post("/api/session", json={"key": server.key}).status_code == 204
        yield browser


def cookie_of(answer: httpx.Response) -> str:
    return answer.headers["set-cookie"].lower()


def test_a_key_signs_in_and_out(simulated_server: Server, stranger: httpx.Client) -> None:
    assert stranger.get("/api/session").status_code == 401
    answer = stranger.post("/api/session", json={"key": f"  {simulated_server.key}\n"})
    assert (answer.status_code, answer.content) == (204, b"")
    cookie = cookie_of(answer)
    for flag in ("httponly", "samesite=strict", "path=/", "max-age=2592000"):
        assert flag in cookie
    assert "secure" not in cookie, "over plain HTTP the browser would drop it"
    assert simulated_server.key not in answer.headers["set-cookie"]
    session = stranger.get("/api/session").json()
    assert (session["authenticated"], session["user"], session["role"]) == (True, None, "owner")
    assert session["organisation"]["id"] == "local"
    token = stranger.cookies["antiphon_session"]
    assert stranger.delete("/api/session").status_code == 204
    assert stranger.get("/api/session").status_code == 401
    kept = httpx.get(f"{simulated_server.url}/api/session", headers={"cookie": f"antiphon_session={token}"})
    assert kept.status_code == 401, "a closed session's cookie is still good"


@pytest.mark.parametrize("key", ["", "sk-", "sk-" + "A" * 43, "x" * 10_000, "sk-\u2028", "' OR 1=1 --"])
def test_a_wrong_key_does_not(stranger: httpx.Client, key: str) -> None:
    answer = stranger.post("/api/session", json={"key": key})
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert "set-cookie" not in answer.headers


def test_the_printed_link_signs_in_and_leaves_no_trace_of_itself(
    simulated_server: Server, stranger: httpx.Client
) -> None:
    answer = stranger.get(simulated_server.signin)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert "httponly" in cookie_of(answer)
    assert stranger.get("/api/session").status_code == 200
    for token in ("", "wrong", simulated_server.signin.partition("token=")[2][:-1], "%ED%A0%80", "%00"):
        refused = httpx.get(f"{simulated_server.url}/signin?token={token}")
        assert refused.status_code == 401
    assert httpx.get(f"{simulated_server.url}/signin").status_code == 400


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "", "http://[", "http://localhost.evil.example"])
def test_another_sites_page_cannot_write(simulated_server: Server, origin: str) -> None:
    with signed_in(simulated_server) as browser:
        made = browser.post("/api/conversations", json={})
        assert made.status_code == 201
        one = f"/api/conversations/{made.json()['id']}"
        for method, path in (
            ("POST", "/api/conversations"), ("PATCH", one), ("DELETE", one), ("POST", f"{one}/turns"),
            ("POST", "/api/session"), ("DELETE", "/api/session"), ("POST", f"/api/turns/msg_{'0' * 32}/stop"),
        ):  # fmt: skip
            body = {"key": simulated_server.key} if path == "/api/session" else {}
            refused = browser.request(method, path, json=body, headers={"origin": origin})
            assert refused.status_code == 403, (method, path, refused.text)
            assert "set-cookie" not in refused.headers
        assert browser.get(one).status_code == 200
        assert browser.get("/api/session").status_code == 200
        same = browser.patch(one, json={"title": "t"}, headers={"origin": simulated_server.url})
        assert same.status_code == 200


def test_the_cookie_is_no_key_for_the_api(simulated_server: Server) -> None:
    with signed_in(simulated_server) as browser:
        for path in ("/v1/models", "/v1/models/simulated"):
            assert browser.get(path).status_code == 401
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            assert browser.post(path, json={"model": "simulated"}).status_code == 401
        token = browser.cookies["antiphon_session"]
    as_key = httpx.get(f"{simulated_server.url}/v1/models", headers={"authorization": f"Bearer {token}"})
    assert as_key.status_code == 401


def test_the_cookie_is_found_among_other_servers_cookies(simulated_server: Server) -> None:
    with signed_in(simulated_server) as browser:
        token = browser.cookies["antiphon_session"]
    for others in ('prefs={"a": 1, "b": [2]}', "x=a b,c", "=", "broken", "a@b=c", 'q="unfinished'):
        answer = httpx.get(
            f"{simulated_server.url}/api/session", headers={"cookie": f"{others}; antiphon_session={token}"}
        )
        assert answer.status_code == 200, others


def test_every_route_of_the_web_app_asks_who_is_there(stranger: httpx.Client) -> None:
    paths = stranger.get("/openapi.json").json()["paths"]
    checked = 0
    for path, methods in paths.items():
        if path.startswith("/api/") and path not in OPEN:
            for method in methods:
                filled = re.sub(r"\{\w+\}", "msg_" + "0" * 32, path)
                answer = stranger.request(method.upper(), filled, json=None if method == "get" else {})
                assert answer.status_code == 401, (method, path)
                checked += 1
    assert checked >= 35
    assert set(paths) >= OPEN


def test_the_page_comes_with_its_policy(stranger: httpx.Client) -> None:
    for path in ("/", "/c/conv_" + "0" * 32):
        page = stranger.get(path)
        assert page.status_code in (200, 503)  # 503: the page has not been built
        if page.status_code == 200:
            assert "default-src 'none'" in page.headers["content-security-policy"]
            assert (
                "unsafe-inline" not in page.headers["content-security-policy"].partition("script-src")[2].split(";")[0]
            )
            assert page.headers["x-content-type-options"] == "nosniff"
