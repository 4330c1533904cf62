"""Starting, draining, dying and starting again: one process and its engine, by real signals."""

import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import MakeServer
from tests.integration.web import begin, conversation, events, finish, messages
from tests.support.server import ANTIPHON, MODEL, SIMULATED, Server, alive, environment, until

STREAM = {"model": SIMULATED, "messages": [{"role": "user", "content": "hi"}], "stream": True}


def serve(*options: str, home: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(ANTIPHON), "serve", "--port", "0", "--model", SIMULATED, *options], env=environment(ANTIPHON_HOME=str(home)),
        capture_output=True, text=True, timeout=60, cwd=home,
    )  # fmt: skip


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_twenty_streams_end_and_leaves_nothing(start_server: MakeServer, sent: signal.Signals) -> None:
    server = start_server()
    texts: list[str] = []

    def follow() -> None:
        with server.client() as http, http.stream("POST", "/v1/chat/completions", json=STREAM) as stream:
            texts.append("".join(stream.iter_text()))

    threads = [threading.Thread(target=follow) for _ in range(20)]
    for thread in threads:
        thread.start()
    with server.client() as http:
        one = conversation(http)
        answer = begin(http, one)["answer"]["id"]
        until(lambda: server.running() == 21, 10, "21 running")
        server.process.send_signal(sent)
        assert finish(http, answer)["status"] == "complete"
    assert server.wait(20) == 0
    for thread in threads:
        thread.join(5)
    assert len(texts) == 20
    for text in texts:
        assert text.endswith("data: [DONE]\n\n")
        assert '"finish_reason":"stop"' in text
        assert '"error"' not in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_a_draining_server_is_unready_and_lets_a_stored_turn_be_kept(start_server: MakeServer) -> None:
    server = start_server()
    with server.client() as http:
        assert http.get("/health/ready").json() == {"status": "ready"}
        assert http.get("/health/live").status_code == http.get("/health/startup").status_code == 200
        one = conversation(http)
        answer = begin(http, one)["answer"]["id"]
    assert server.terminate() == 0
    server.start()
    with server.client() as http:
        saved = messages(http, one)[answer]
    assert saved["status"] in ("complete", "interrupted")
    assert saved["content"]
    assert not list((server.home / "turns").iterdir())


def test_sigterm_takes_the_engine_along(start_real_server: MakeServer) -> None:
    server = start_real_server()
    engine = server.engine_pid()
    assert server.terminate() == 0
    assert not alive(engine)


def test_the_engine_of_a_killed_server_ends_and_the_answer_is_kept(start_real_server: MakeServer) -> None:
    """What a follower has been shown is in the message after the next start, which can go on with it."""
    server = start_real_server()
    engine = server.engine_pid()
    with server.client() as http:
        one = conversation(http, parameters={"temperature": 0})
        answer = begin(http, one, content="Write a very long story about the sea.")["answer"]["id"]
        shown = ""
        for _, payload in events(http, answer):
            shown += payload["text"]
            if len(shown) > 30:
                break
        server.kill()
    took = until(lambda: not alive(engine), 3, "the engine's end")
    print(f"the engine ended {took * 1000:.0f} ms after its server")

    server.start()
    with server.client() as http:
        saved = messages(http, one)[answer]
        assert saved["status"] == "interrupted"
        assert saved["content"].startswith(shown)
        assert saved["error"]
        [(_, only)] = events(http, answer, 7)
        assert only["done"] == saved
        begin(http, one, **{"continue": answer}, parameters={"max_tokens": 5})
        after = finish(http, answer)
        assert after["content"].startswith(saved["content"])
        assert len(after["content"]) > len(saved["content"])
        assert after["error"] is None
    assert server.key


def test_killed_again_and_again_nothing_shown_is_lost(start_server: MakeServer) -> None:
    server = start_server()
    shown = {}
    for round_ in range(2):
        with server.client() as http:
            for _ in range(4):
                one = conversation(http)
                answer = begin(http, one)["answer"]["id"]
                stream = events(http, answer)
                shown[one, answer] = "".join(next(stream)[1]["text"] for _ in range(3 + 8 * round_))
        server.kill()
        server.start()
    with server.client() as http:
        for (one, answer), text in shown.items():
            saved = messages(http, one)[answer]
            assert saved["status"] in ("interrupted", "complete")
            assert saved["content"].startswith(text)


def test_the_key_is_printed_once_and_good_for_ever(start_server: MakeServer) -> None:
    server = start_server()
    first, session = server.key, httpx.Client(base_url=server.url)
    assert first in server.printed
    assert session.post("/api/session", json={"key": first}).status_code == 204
    token = session.cookies["antiphon_session"]
    link = server.signin
    assert server.terminate() == 0
    server.start()
    assert first not in server.printed
    assert server.log.count(first) == 0
    assert server.client().get("/v1/models").status_code == 200
    kept = httpx.get(f"{server.url}/api/session", headers={"cookie": f"antiphon_session={token}"})
    assert kept.status_code == 200, "a restart signed the browser out"
    old = link.partition("token=")[2]
    assert httpx.get(f"{server.url}/signin", params={"token": old}).status_code == 401, "an old link still signs in"


def test_two_homes_are_two_installations(simulated_server: Server, start_server: MakeServer) -> None:
    one, two = simulated_server, start_server()
    assert one.key != two.key
    with one.client() as http:
        mine = conversation(http)
    crossed = httpx.get(f"{two.url}/v1/models", headers=one.auth)
    assert crossed.status_code == 401
    with two.client() as http:
        assert http.get(f"/api/conversations/{mine}").status_code == 404
        assert http.get("/api/conversations").json()["data"] == []


def test_keys_are_made_and_revoked_beside_a_running_server(start_server: MakeServer) -> None:
    server = start_server()

    def keys(*words: str) -> str:
        done = subprocess.run(
            [str(ANTIPHON), "keys", *words], env=environment(ANTIPHON_HOME=str(server.home), COLUMNS="200"),
            capture_output=True, text=True, timeout=60, check=True, cwd=server.home,
        )  # fmt: skip
        return done.stdout.strip()

    second = keys("create", "second")
    stranger = {"Authorization": f"Bearer {second}"}
    assert httpx.get(f"{server.url}/v1/models", headers=stranger).status_code == 200
    listed = keys("list")
    assert second not in listed
    [name] = [
        word for line in listed.splitlines() if "second" in line for word in line.split() if word.startswith("key_")
    ]
    keys("revoke", name)
    took = until(
        lambda: httpx.get(f"{server.url}/v1/models", headers=stranger).status_code == 401, 6, "the refusal", pause=0.2
    )
    assert took <= 5.5


def test_no_auth_is_refused_where_others_can_come(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "example.com"):
        refused = serve("--no-auth", "--host", host, home=tmp_path)
        assert refused.returncode == 1
        assert "loopback" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert not (tmp_path / "antiphon.db").exists()


def test_no_auth_answers_only_to_loopback_names_and_its_own_page(start_server: MakeServer) -> None:
    server = start_server("--no-auth")
    assert "none needed" in server.printed
    with httpx.Client(base_url=server.url) as http:
        assert http.get("/v1/models").status_code == 200
        assert http.post("/api/conversations", json={}).status_code == 201
        body = STREAM | {"stream": False, "max_tokens": 1}
        for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example", "[", ""):
            for answer in (
                http.get("/v1/models", headers={"host": host}),
                http.get("/api/conversations", headers={"host": host}),
                http.post("/v1/chat/completions", json=body, headers={"host": host}),
            ):
                assert answer.status_code in (400, 403), (host, answer.text)
        for origin in ("https://evil.example", "null", "http://["):
            for path in ("/v1/chat/completions", "/api/conversations"):
                assert http.post(path, json=body, headers={"origin": origin}).status_code == 403
        assert http.post("/v1/chat/completions", json=body, headers={"origin": server.url}).status_code == 200
        for name in ("localhost", "127.0.0.1", "[::1]"):
            assert http.get("/v1/models", headers={"host": f"{name}:{server.port}"}).status_code == 200
    assert server.terminate() == 0


def test_a_taken_port_and_a_missing_model_are_told_in_words(simulated_server: Server, tmp_path: Path) -> None:
    taken = serve("--port", str(simulated_server.port), home=tmp_path)
    assert taken.returncode != 0
    assert "in use" in taken.stderr
    missing = serve("--model", "no-such-model", home=tmp_path)
    assert missing.returncode == 1
    assert "no-such-model" in missing.stderr
    assert MODEL in missing.stderr
    for said in (taken.stderr, missing.stderr):
        assert "Traceback" not in said


CANARY = "canary-prompt-51423"


def test_no_secret_is_in_a_log_or_in_the_database(start_real_server: MakeServer) -> None:
    server = start_real_server(LOG_LEVEL="info")
    began = time.time()
    with server.client() as http:
        chat = {"model": MODEL, "messages": [{"role": "user", "content": CANARY}], "max_tokens": 4, "user": CANARY}
        for stream in (False, True):
            assert http.post("/v1/chat/completions", json=chat | {"stream": stream}).status_code == 200
        http.post("/v1/completions", json={"model": MODEL, "prompt": CANARY, "max_tokens": 2})
        http.post("/v1/chat/completions", json=chat | {"temperature": 9, CANARY: 1})
        http.post("/v1/chat/completions", content=f'{{"model": "{CANARY}'.encode())
        http.post("/v1/chat/completions", json=chat | {"model": CANARY})
        finish(http, begin(http, conversation(http), content=CANARY, parameters={"max_tokens": 2})["answer"]["id"])
        http.get("/api/conversations", params={"q": CANARY})
        signed = http.post("/api/session", json={"key": server.key})
        http.get(server.signin)
        http.get("/v1/models", headers={"Authorization": f"Bearer {server.key}x"})
    cookie = signed.cookies["antiphon_session"]
    token = server.signin.partition("token=")[2]
    assert server.terminate() == 0
    logs = "".join(p.read_text(errors="replace") for p in [server.log_file, *(server.home / "logs").iterdir()])
    assert '"route":"/v1/chat/completions"' in logs
    assert '"tenant":"local"' in logs
    for secret in (server.key, server.key[3:], cookie, token, CANARY):
        assert secret not in logs
    database = b"".join(p.read_bytes() for p in server.home.glob("antiphon.db*"))
    for secret in (server.key[3:], cookie, token):
        assert secret.encode() not in database
    assert CANARY.encode() in database, "the conversation itself is stored"
    for path in (server.home / "pepper", *(server.home / "turns").glob("*")):
        assert path.stat().st_mode & 0o077 == 0
    assert time.time() - began < 60
