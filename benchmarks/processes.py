"""Child processes of a benchmark, and what they cost."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, its children not counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_kib(pid: int) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])  # type: ignore[index]


@contextmanager
def child(
    command: Sequence[str], ready: str, env: Mapping[str, str] | None = None, cpu: int | None = None
) -> Iterator[Any]:
    """A process that has printed a line with `ready`; gives (process, the lines so far). Pinned to `cpu` if given."""
    cores = os.sched_getaffinity(0)
    pin = ["taskset", "-c", str(sorted(cores)[cpu % len(cores)])] if cpu is not None and len(cores) > 1 else []
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [*pin, *command], stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **(env or {})}
        )
        try:
            lines = []
            assert process.stdout
            for line in process.stdout:
                lines.append(line)
                if ready in line:
                    break
            else:
                errors.seek(0)
                raise RuntimeError(f"{command} ended early: {errors.read().decode()[-2000:]}")
            yield process, lines
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def antiphon(model: str, cpu: int | None = None, **env: str) -> Iterator[tuple[int, int, str]]:
    """The product itself in a fresh data folder: (pid, port, API key)."""
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        command = [sys.executable, "-m", "deploy.cli", "serve", "--port", str(port), "--model", model]
        with child(command, "Try:", {"ANTIPHON_HOME": home, "ANTIPHON_LOG_LEVEL": "info", **env}, cpu) as (
            process,
            lines,
        ):
            key = re.search(r"sk-[\w-]+", "".join(lines))
            assert key
            yield process.pid, port, key[0]


@contextmanager
def upstream(cpu: int | None = None) -> Iterator[int]:
    port = free_port()
    with child([sys.executable, "-m", "benchmarks.upstream", str(port)], "ready", cpu=cpu):
        yield port


def load(cpu: int | None = None, **plan: Any) -> dict[str, Any]:
    cores = os.sched_getaffinity(0)
    pin = ["taskset", "-c", str(sorted(cores)[cpu % len(cores)])] if cpu is not None and len(cores) > 1 else []
    command = [*pin, sys.executable, "-m", "benchmarks.load", json.dumps(plan)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout))


def wait_for_port(port: int, patience: float = 60) -> None:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with socket.socket() as s:
            if not s.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    raise RuntimeError(f"nothing listens on {port}")
