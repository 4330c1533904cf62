"""The official JavaScript client: tests/clients/*.mjs, each a file of node's own tests, against the real model."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.server import EMBEDDINGS, MODEL, Server

CLIENTS = Path(__file__).parents[1] / "clients"


@pytest.fixture(scope="session")
def openai_npm() -> None:
    """`make test` has installed it; a bare pytest installs it here."""
    if not (CLIENTS / "node_modules" / "openai" / "package.json").is_file():
        command = ["npm", "ci", "--prefix", str(CLIENTS), "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, check=True, timeout=180)


@pytest.mark.usefixtures("openai_npm")
@pytest.mark.parametrize("script", ["chat", "tools", "embeddings", "errors"])
def test_the_javascript_client(server: Server, script: str) -> None:
    named = {"BASE_URL": f"{server.url}/v1", "API_KEY": server.key, "MODEL": MODEL, "EMBEDDINGS": EMBEDDINGS}
    done = subprocess.run(
        ["node", "--test", f"{script}.mjs"], cwd=CLIENTS, env=os.environ | named, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# fail 0" in done.stdout
    assert "# pass 0" not in done.stdout


def test_the_lock_names_no_place_to_download_from() -> None:
    lock = (CLIENTS / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    packages = {name: p for name, p in json.loads(lock)["packages"].items() if name}
    assert all(p["integrity"].startswith("sha512-") for p in packages.values())
    assert packages["node_modules/openai"]["version"].startswith("7.")
