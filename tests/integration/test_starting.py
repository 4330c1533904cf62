"""What a start says when it cannot go on, and what HTTP's small print promises."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.server import Server


def refused(home: Path, *arguments: str, **env: str) -> str:
    command = [sys.executable, "-m", "deploy.cli", "serve", "--model", "simulated", "--home", str(home), *arguments]
    ended = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=60)
    assert ended.returncode in (1, 2), ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("LOG_LEVEL", "loud", "ANTIPHON_LOG_LEVEL"),
        ("HEARTBEAT", "-3", "ANTIPHON_HEARTBEAT"),
        ("BLOCKED_PHRASES", "not json", "blocked_phrases"),
        ("DATABASE_URL", "mysql://x", "database URL"),
        ("DATABASE_URL", "postgresql+asyncpg://user:secret@127.0.0.1:1/x", "database"),
        ("OTLP_ENDPOINT", "http://127.0.0.1:1", "telemetry"),
        ("MODEL", __file__, "GGUF"),
        ("MODEL", "all-minilm-l6-v2", "embedding model"),
        ("HOST", "999.1.1.1", "999.1.1.1"),
    ],
)
def test_a_setting_that_cannot_be_used_is_told_in_words(tmp_path: Path, name: str, value: str, told: str) -> None:
    arguments = () if name != "MODEL" else ("--model", value)
    said = refused(tmp_path / "home", *arguments, **{f"ANTIPHON_{name}": value})
    assert told in said
    assert "secret" not in said


def test_a_data_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "data folder" in refused(tmp_path / "file")


def test_a_port_that_is_taken_is_told_before_anything_is_made(simulated_server: Server, tmp_path: Path) -> None:
    port = httpx.URL(simulated_server.url).port
    assert f"port {port}" in refused(tmp_path / "home", "--port", str(port))
    assert not (tmp_path / "home").exists()


def test_a_data_folder_has_one_server(tmp_path: Path, start_server: Callable[..., Server]) -> None:
    server = start_server()
    assert "Another server" in refused(server.home, "--port", "0")
    with server.client() as http:
        assert http.get("/v1/models").status_code == 200


def test_conversations_are_readable_by_their_owner_only(tmp_path: Path, start_server: Callable[..., Server]) -> None:
    server = start_server()
    files = [server.home / "antiphon.db", server.home / "pepper", server.home / "turns"]
    assert not [p for p in files if p.stat().st_mode & 0o077]


def test_head_is_get_without_a_body(simulated_server: Server) -> None:
    with simulated_server.client() as http:
        for path in ("/", "/v1/models", "/health/live"):
            head, get = http.head(path), http.get(path)
            assert (head.status_code, head.content) == (get.status_code, b"")
            assert head.headers["content-type"] == get.headers["content-type"]


def test_refusals_carry_the_headers_that_http_asks_for(simulated_server: Server) -> None:
    with simulated_server.client() as http:
        assert http.delete("/v1/models").headers["allow"] == "GET"
        assert http.get("/v1/chat/completions").headers["allow"] == "POST"
    assert httpx.get(f"{simulated_server.url}/v1/models").headers["www-authenticate"] == "Bearer"
