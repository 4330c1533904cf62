"""Seconds from the command to the lines that say it is ready: a fresh data folder, then the same one again."""

import sys
import tempfile
import time

from benchmarks.processes import child, free_port
from benchmarks.report import Figure, show
from inference.models import load_catalog


def start(home: str, model: str) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "deploy.cli", "serve", "--port", str(free_port()), "--model", model]
    with child(command, "Try:", {"ANTIPHON_HOME": home}):
        return time.perf_counter() - began


def run() -> None:
    model = load_catalog().default
    with tempfile.TemporaryDirectory() as home:
        first, warm = start(home, model), start(home, model)
    show(f"Start-up with {model}, weights in the cache", [
        Figure("fresh data folder", first, "s"),
        Figure("warm start", warm, "s", most=15),
    ])  # fmt: skip
