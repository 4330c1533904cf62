"""What no HTTP client would send, over raw sockets: refused in the one shape of error, and cheaply."""

import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import MakeServer
from tests.support.server import SIMULATED, Server

BODY = b'{"model": "simulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}'
Ask = Callable[..., tuple[int, dict[str, str], bytes]]


def head(server: Server, *fields: bytes, path: str = "/v1/chat/completions", method: str = "POST") -> bytes:
    own = [b"Host: localhost", b"Authorization: Bearer " + server.key.encode(), b"Content-Type: application/json"]
    return f"{method} {path} HTTP/1.1\r\n".encode() + b"\r\n".join([*own, *fields]) + b"\r\n\r\n"


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def answer(sock: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of one answer that has a length."""
    data = b""
    while b"\r\n\r\n" not in data:
        got = sock.recv(65536)
        assert got, f"closed without an answer: {data!r}"
        data += got
    first, _, rest = data.partition(b"\r\n\r\n")
    line, *fields = first.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (f.partition(":") for f in fields)}
    while len(rest) < int(headers["content-length"]):
        got = sock.recv(65536)
        assert got, "closed in the middle of the body"
        rest += got
    return int(line.split()[1]), headers, rest


def assert_refused(got: tuple[int, dict[str, str], bytes], *statuses: int) -> None:
    status, headers, body = got
    assert status in (statuses or (400,)), body
    assert headers["x-request-id"].startswith("req_")
    error = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]


@pytest.fixture
def flat(simulated_server: Server) -> Iterator[None]:
    """The server's memory is where it was."""
    before = simulated_server.rss_mib()
    yield
    time.sleep(0.1)
    assert simulated_server.rss_mib() - before < 20


@pytest.fixture
def ask(simulated_server: Server) -> Ask:
    def ask(*pieces: bytes) -> tuple[int, dict[str, str], bytes]:
        with connect(simulated_server) as sock:
            for piece in pieces:
                sock.sendall(piece)
            return answer(sock)

    return ask


@pytest.mark.usefixtures("flat")
def test_content_length_together_with_chunked_is_refused(simulated_server: Server, ask: Ask) -> None:
    both = head(simulated_server, b"Content-Length: %d" % len(BODY), b"Transfer-Encoding: chunked")
    assert_refused(ask(both + b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)))


@pytest.mark.parametrize(
    "field",
    [b"Content-Length: -1", b"Content-Length: 1, 2", b"Content-Length: 0x10", b"Content-Length: 99999999999999999999999",
     b"Content-Length: 5\r\nContent-Length: 6", b"Transfer-Encoding: chunked, gzip", b"Bad Name: x", b"X: a\0b", b"no colon"],
    ids=["negative", "a list", "hex", "huge", "twice", "not chunked last", "space in name", "NUL", "no colon"],
)  # fmt: skip
def test_a_broken_head_is_refused(simulated_server: Server, ask: Ask, field: bytes) -> None:
    assert_refused(ask(head(simulated_server, field) + BODY), 400, 413)


@pytest.mark.parametrize("first", [b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n", b"\0" * 100])
def test_what_is_not_http_is_refused(ask: Ask, first: bytes) -> None:
    assert_refused(ask(first))


@pytest.mark.usefixtures("flat")
def test_an_endless_header_is_cut_off(simulated_server: Server) -> None:
    with connect(simulated_server) as sock:
        sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX: ")
        sent = 0
        try:
            while sent < 200 << 20:
                sent += sock.send(b"a" * 65536)
        except OSError:
            pass
        assert sent < 16 << 20, "megabytes of a header were read"


@pytest.mark.usefixtures("flat")
def test_a_large_head_has_a_status_of_its_own(simulated_server: Server, ask: Ask) -> None:
    for field in (b"X: " + b"a" * 70_000, b"\r\n".join(b"X-%d: %b" % (i, b"a" * 500) for i in range(140))):
        assert_refused(ask(head(simulated_server, b"Content-Length: 0", field)), 431)
    assert_refused(ask(head(simulated_server, path="/" + "a" * 70_000, method="GET")), 431)
    status, _, _ = ask(
        head(simulated_server, b"Content-Length: %d" % len(BODY), b"X: " + b"a" * 30_000), BODY[:9], BODY[9:]
    )
    assert status == 200


@pytest.mark.usefixtures("flat")
def test_a_declared_large_body_is_refused_before_it_comes(simulated_server: Server, ask: Ask) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/api/session", "/api/conversations"):
        assert_refused(ask(head(simulated_server, b"Content-Length: 10000000000", path=path)), 413)


@pytest.mark.usefixtures("flat")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/session"])
def test_an_endless_chunked_body_is_refused(simulated_server: Server, path: str) -> None:
    with connect(simulated_server) as sock:
        sock.sendall(head(simulated_server, b"Transfer-Encoding: chunked", path=path))
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        try:
            for _ in range(200):
                sock.sendall(chunk)
        except OSError:
            return  # cut off; the answer may have been lost with the connection
        assert_refused(answer(sock), 413)


def test_one_connection_carries_many_requests(simulated_server: Server) -> None:
    request = head(simulated_server, b"Content-Length: %d" % len(BODY)) + BODY
    with connect(simulated_server) as sock:
        sock.sendall(request * 3)
        assert [answer(sock)[0] for _ in range(1)] == [200]
        rest = b""
        while rest.count(b'"chat.completion"') < 2:
            rest += sock.recv(65536)
        for _ in range(2):
            sock.sendall(request)
            assert answer(sock)[0] == 200


def test_rubbish_behind_a_request_does_not_get_into_its_stream(simulated_server: Server) -> None:
    body = BODY.replace(b'"max_tokens": 2', b'"stream": true')
    with connect(simulated_server) as sock:
        sock.sendall(head(simulated_server, b"Content-Length: %d" % len(body)) + body)
        got = sock.recv(65536)
        sock.sendall(b"\x00rubbish\r\n\r\n")
        while more := sock.recv(65536):
            got += more
    assert got.count(b"HTTP/1.1") == 1


def test_a_slow_body_and_a_slow_head_are_cut(start_server: MakeServer) -> None:
    server = start_server(BODY_TIMEOUT="1")
    began = time.monotonic()
    slow = []
    for sent in (
        head(server, b"Content-Length: %d" % len(BODY)) + BODY[:20],
        head(server, b"Content-Length: 30", path="/api/session") + b"{",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: local",
    ):
        slow.append(connect(server))
        slow[-1].sendall(sent)
    with connect(server) as silent:
        assert silent.recv(1) == b"", "an idle connection was held"
    for sock in slow:
        with sock:
            assert_refused(answer(sock), 400, 408)
    assert 0.9 < time.monotonic() - began < 3.5


def test_headers_that_claim_to_be_somebody_change_nothing(simulated_server: Server) -> None:
    claims = {
        "X-Forwarded-For": "10.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example",
        "Forwarded": "for=10.0.0.1", "X-Real-IP": "10.0.0.1", "OpenAI-Organization": "org-other", "X-Tenant": "other",
        "OpenAI-Project": "other", "X-Request-Id": "req_mine", "X-Remote-User": "root",
    }  # fmt: skip
    with simulated_server.client() as http:
        ours = http.post("/api/conversations", json={}).json()["id"]
        seen = http.get(f"/api/conversations/{ours}", headers=claims)
        assert seen.status_code == 200
        assert seen.headers["x-request-id"] != "req_mine"
        signed = http.post("/api/session", json={"key": simulated_server.key}, headers=claims)
        assert "secure" not in signed.headers["set-cookie"].lower(), "a header made this connection https"
        http.headers.pop("authorization")
        assert http.get("/v1/models", headers=claims).status_code == 401
    assert '"tenant":"other"' not in simulated_server.log.replace(" ", "")
    assert "req_mine" not in simulated_server.log


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/chat/completions", 405), ("DELETE", "/v1/embeddings", 405), ("PUT", "/v1/completions", 405),
        ("POST", "/v1/models", 405), ("GET", "/v1/nothing", 404), ("POST", "/v1/audio/transcriptions", 404),
        ("GET", "/v1", 404), ("GET", "/nothing", 404), ("PATCH", "/api/session", 405), ("GET", "/../../etc/passwd", 404),
        ("GET", "/assets/../../settings.py", 404), ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404), ("GET", "/a%00b", 404),
        ("GET", "/v1/models/%ED%A0%80", 404), ("OPTIONS", "/v1/chat/completions", 405), ("GET", "/c/../../x", 404),
    ],
)  # fmt: skip
def test_unknown_paths_and_methods_have_the_one_shape(
    simulated_server: Server, ask: Ask, method: str, path: str, status: int
) -> None:
    assert_refused(ask(head(simulated_server, b"Content-Length: 0", path=path, method=method)), status)


def test_a_multipart_call_of_an_unknown_path_is_a_404(simulated_server: Server) -> None:
    with simulated_server.client() as http:
        answered = http.post("/v1/audio/transcriptions", files={"file": b"RIFF"}, data={"model": SIMULATED})
    assert answered.status_code == 404
    assert answered.json()["error"]["code"] == "not_found"
