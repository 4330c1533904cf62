"""Through the gateway against the engine's own HTTP server: same model, same settings, rounds taken in turns."""

import json
import os
import re
import secrets
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import antiphon, child, load
from benchmarks.report import Figure, show
from inference.models import ensure, resolve
from inference.settings import LlamaCppSettings

MODEL = "smollm2-135m-instruct"
ROUNDS = 9
TOKENS = 48


@contextmanager
def bare_engine() -> Iterator[tuple[int, str]]:
    """llama.cpp's server as our supervisor starts it, without us: (port, key)."""
    model = resolve(MODEL)
    path = ensure(model)[model.files[0].name]
    options = LlamaCppSettings().model_dump() | {"model": str(path)}
    key = secrets.token_urlsafe(16)
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        os.mkfifo(ready)
        script = (
            "import os, sys, subprocess; r = os.open(sys.argv[1], os.O_RDWR); "
            "p = subprocess.Popen([sys.executable, '-m', 'inference.engines.llama_server', sys.argv[2]], stdin=subprocess.PIPE, "
            "pass_fds=(r,), env={**os.environ, 'READY_FD': str(r)}); print(os.read(r, 200).decode(), flush=True); p.wait()"
        )
        command = [sys.executable, "-c", script, str(ready), json.dumps(options)]
        with child(command, "http", {"LLAMA_SERVER_KEY": key}) as (_, lines):
            port = re.search(r":(\d+)", lines[-1])
            assert port
            yield int(port[1]), key


def run() -> None:
    with bare_engine() as bare, antiphon(MODEL) as us:
        for streams in (1, 8):
            compare(bare, (us[1], us[2]), streams)


def compare(bare: tuple[int, str], gateway: tuple[int, str], streams: int) -> None:
    rates: dict[str, list[float]] = {"bare": [], "gateway": []}
    ttft: dict[str, list[float]] = {"bare": [], "gateway": []}
    for number in range(-1, ROUNDS):
        for name, (port, key) in (("bare", bare), ("gateway", gateway)):
            result = one_round(port, key, streams)
            if number >= 0:  # the first one warms both
                rates[name].append(result["chunks"] / result["seconds"])
                ttft[name].append(result["ttft_median"])
    medians = {name: statistics.median(values) for name, values in rates.items()}
    waits = {name: statistics.median(values) for name, values in ttft.items()}
    show(f"Through the gateway against the engine's own server, {streams} stream{'s' if streams > 1 else ''}", [
        Figure("tokens/s, the engine alone", medians["bare"]),
        Figure("tokens/s through the gateway, as a ratio", medians["gateway"] / medians["bare"], least=0.95),
        Figure("TTFT, the engine alone", waits["bare"] * 1000, "ms"),
        Figure("TTFT added", (waits["gateway"] - waits["bare"]) * 1000, "ms", most=15),
    ])  # fmt: skip


def one_round(port: int, key: str, streams: int) -> dict[str, Any]:
    result = load(
        None, port=port, key=key, model=MODEL, requests=streams, connections=streams, max_tokens=TOKENS,
        prompt="Write a long story about a choir by the sea.",
    )  # fmt: skip
    if result["failed"]:
        raise RuntimeError(result["first_error"])
    return result
