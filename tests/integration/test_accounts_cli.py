"""The command line as a person or a script runs it: beside a running server, on PostgreSQL, at a terminal."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import MakeServer
from tests.support.postgres import postgres_database, postgres_server
from tests.support.server import ANTIPHON, Server, environment, until

__all__ = ["postgres_database", "postgres_server"]

PASSWORD = "correct horse battery"
REVOKED_S = 5.0


def antiphon(home: Path, *words: str, given: str = "", code: int = 0, **settings: str) -> str:
    """What it prints on standard output; for a refusal, on standard error."""
    command = [str(ANTIPHON), *words, "--home", str(home)]
    done = subprocess.run(
        command, input=given, env=environment(**settings), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert (done.stderr if code == 0 else done.stdout) == ""
    return (done.stdout if code == 0 else done.stderr).strip()


def objects(home: Path, *words: str, **settings: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(antiphon(home, *words, "--json", **settings))
    return found


def refused_soon(ask: httpx.Request, client: httpx.Client) -> None:
    until(lambda: client.send(ask).status_code == 401, REVOKED_S, "the refusal", pause=0.1)


def test_a_fresh_installation_is_set_up_by_a_script(tmp_path: Path) -> None:
    home = tmp_path / "home"
    antiphon(home, "users", "create", "ann@x.org", "--password-stdin", given=PASSWORD)
    acme = antiphon(home, "orgs", "create", "Acme", "--tier", "team")
    secret = antiphon(home, "keys", "create", "ci", "--org", acme)
    assert secret.startswith("sk-")
    assert [key["name"] for key in objects(home, "keys", "list", "--org", acme)] == ["ci"]
    assert "at least one owner" in antiphon(home, "users", "remove", "ann@x.org", code=1)
    assert antiphon(home, "audit", "verify").startswith("entries: 5\nhead: ")
    for path in home.iterdir():
        assert path.stat().st_mode & 0o077 == 0, f"{path} is open to others"
        for canary in (secret, PASSWORD):
            assert canary.encode() not in path.read_bytes()


def test_a_key_that_is_revoked_beside_a_server_is_refused_within_seconds(start_server: MakeServer) -> None:
    server = start_server()
    secret = antiphon(server.home, "keys", "create", "laptop")
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {secret}"}, timeout=60) as client:
        asked = client.build_request("GET", "/v1/models")
        assert client.send(asked).status_code == 200
        [key] = [key for key in objects(server.home, "keys", "list") if key["name"] == "laptop"]
        antiphon(server.home, "keys", "revoke", key["id"])
        refused_soon(asked, client)
        assert client.send(asked).json()["error"]["code"] == "invalid_api_key"


def test_people_are_managed_beside_a_server(start_server: MakeServer) -> None:
    server = start_server()
    antiphon(server.home, "users", "create", "ann@x.org", "--password-stdin", given=PASSWORD)
    antiphon(server.home, "users", "create", "bob@x.org", "--password-stdin", given=PASSWORD)
    with signed_in(server, "bob@x.org") as bob:
        session = bob.get("/api/session").json()
        assert (session["user"]["email"], session["role"]) == ("bob@x.org", "member")
        asked = bob.build_request("GET", "/api/session")
        antiphon(server.home, "users", "sign-out", "bob@x.org")
        refused_soon(asked, bob)
    with signed_in(server, "bob@x.org") as bob:
        asked = bob.build_request("GET", "/api/session")
        antiphon(server.home, "orgs", "suspend", "local")
        refused_soon(asked, bob)
        assert bob.post("/api/session", json={"email": "bob@x.org", "password": PASSWORD}).status_code == 403
        antiphon(server.home, "orgs", "resume", "local")
        assert bob.post("/api/session", json={"email": "bob@x.org", "password": PASSWORD}).status_code == 204


@contextmanager
def signed_in(server: Server, email: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as browser:
        assert browser.post("/api/session", json={"email": email, "password": PASSWORD}).status_code == 204
        yield browser


def test_what_a_server_served_is_in_the_usage(start_server: MakeServer) -> None:
    server = start_server()
    body = {"model": "simulated", "max_tokens": 5, "messages": [{"role": "user", "content": "Hello!"}]}
    with server.client() as client:
        used = client.post("/v1/chat/completions", json=body).json()["usage"]
    until(lambda: objects(server.home, "usage"), 30, "the record")
    [total] = objects(server.home, "usage")
    assert (total["group"]["model"], total["requests"]) == ("simulated", 1)
    assert (total["prompt_tokens"], total["output_tokens"]) == (used["prompt_tokens"], used["completion_tokens"])
    head, record = antiphon(server.home, "usage", "--csv").splitlines()
    assert dict(zip(head.split(","), record.split(","), strict=True))["output_tokens"] == str(used["completion_tokens"])


def test_it_works_on_postgresql(tmp_path: Path, postgres_database: str) -> None:
    home, on = tmp_path / "home", {"ANTIPHON_DATABASE_URL": postgres_database}
    antiphon(home, "users", "create", "ann@x.org", "--password-stdin", given=PASSWORD, **on)
    acme = antiphon(home, "orgs", "create", "Acme", **on)
    antiphon(home, "orgs", "set-budget", acme, "0.000001", **on)
    assert [o["monthly_budget"] for o in objects(home, "orgs", "list", **on)] == [None, 1]
    assert [user["email"] for user in objects(home, "users", "list", **on)] == ["ann@x.org"]
    assert antiphon(home, "audit", "verify", **on).startswith("entries: 5\n")
    assert not (home / "antiphon.db").exists()
    nowhere = postgres_database.rpartition("/")[0] + "/nowhere"
    told = antiphon(home, "keys", "list", ANTIPHON_DATABASE_URL=nowhere, code=1)
    assert told == 'antiphon: The database refuses us: database "nowhere" does not exist.'


def test_commands_at_once_wait_for_each_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda n: antiphon(home, "keys", "create", f"key {n}"), range(4)))
    assert len(set(made)) == 4
    assert sorted(key["name"] for key in objects(home, "keys", "list")) == [f"key {n}" for n in range(4)]
    assert antiphon(home, "audit", "verify").startswith("entries: 5\n")


def test_a_terminal_is_asked_twice_and_shows_no_password(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [str(ANTIPHON), "users", "create", "ann@x.org", "--home", str(tmp_path)]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(), start_new_session=True
    ) as process:
        os.close(theirs)
        shown = ""
        for question, answer in (
            ("Password: ", PASSWORD), ("Repeat for confirmation: ", "canary"),
            ("Password: ", PASSWORD), ("Repeat for confirmation: ", PASSWORD),
        ):  # fmt: skip
            asked = _read_until(ours, question)
            shown += asked
            os.write(ours, answer.encode() + b"\n")
        shown += _read_until(ours, "user_")
        assert process.wait(60) == 0
    os.close(ours)
    assert "do not match" in shown
    for canary in (PASSWORD, "canary"):
        assert canary not in shown


def _read_until(terminal: int, words: str) -> str:
    shown = ""
    while words not in shown:
        shown += os.read(terminal, 1000).decode()
    return shown
