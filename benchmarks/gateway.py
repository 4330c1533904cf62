"""What the gateway costs: CPU of its process against a mock upstream, with auth, validation, usage, metrics and logs on.

The gateway has one core for itself; upstream and load share the other. With RIVALS=1 the same load goes through
LiteLLM and vLLM's Rust router, in an environment of their own, in the same run.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.processes import antiphon, cpu_seconds, free_port, load, rss_kib, upstream, wait_for_port
from benchmarks.report import Figure, show

ROUNDS = 3
MODELS = ("burst-1", "burst-128", "paced-100", "paced-500")
RIVALS = Path(__file__).parent / ".cache" / "rivals"


def cost(pid: int, requests: int, **plan: Any) -> float:
    """CPU seconds a request."""
    before = cpu_seconds(pid)
    result = load(1, requests=requests, **plan)
    if result["failed"] or result["ok"] != requests:
        raise RuntimeError(f"{result['failed']} of {requests} failed: {result['first_error']}")
    return (cpu_seconds(pid) - before) / requests


def costs(pid: int, port: int, key: str) -> dict[str, float]:
    """µs: a request of one token; a chunk in bursts of 128; a chunk paced at 20 ms on 256 streams."""
    load(1, port=port, key=key, model="burst-1", requests=200, connections=8)
    rounds: dict[str, list[float]] = {"request": [], "burst": [], "paced": []}
    for _ in range(ROUNDS):
        common = {"port": port, "key": key}
        rounds["request"].append(cost(pid, 3000, model="burst-1", connections=32, **common) * 1e6)
        rounds["burst"].append(cost(pid, 1000, model="burst-128", connections=64, **common) * 1e6 / 128)
        rounds["paced"].append(cost(pid, 256, model="paced-100", connections=256, **common) * 1e6 / 100)
    return {name: statistics.median(values) for name, values in rounds.items()}


def ours() -> None:
    with upstream(1) as port, antiphon(",".join(MODELS), 0, ANTIPHON_UPSTREAM_URL=f"http://127.0.0.1:{port}/v1") as us:
        pid, own_port, key = us
        found = costs(pid, own_port, key)
        show("CPU of the gateway's process (medians of rounds)", [
            Figure("a request", found["request"], "µs", most=350),
            Figure("a streamed chunk, paced at 20 ms, 256 streams", found["paced"], "µs", most=90),
            Figure("a streamed chunk in bursts of 128, 64 connections", found["burst"], "µs", most=12),
        ])  # fmt: skip
        open_streams(pid, own_port, key)


def open_streams(pid: int, port: int, key: str, streams: int = 2000) -> None:
    base = peak = rss_kib(pid)
    over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.2):
            peak = max(peak, rss_kib(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    result = load(1, port=port, key=key, model="paced-500", requests=streams, connections=streams, ramp_s=5)
    over.set()
    watcher.join()
    show(f"{streams} open streams, a token each 20 ms wanted", [
        Figure("whole answers", float(result["ok"]), "", least=streams),
        Figure("errors and truncations", float(result["failed"]), "", most=0),
        Figure("memory a stream", (peak - base) / streams, "KiB", most=60),
    ])  # fmt: skip


@contextmanager
def litellm(upstream_port: int) -> Iterator[tuple[int, int, str]]:
    port = free_port()
    names = "".join(
        f"  - model_name: {m}\n    litellm_params: {{model: openai/{m}, "
        f"api_base: 'http://127.0.0.1:{upstream_port}/v1', api_key: x}}\n"
        for m in MODELS
    )
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(f"model_list:\n{names}general_settings: {{master_key: sk-bench}}\n")
        config.flush()
        command = [str(RIVALS / "bin" / "litellm"), "--config", config.name, "--port", str(port), "--host", "127.0.0.1"]
        with _quiet(command, port) as pid:
            yield pid, port, "sk-bench"


@contextmanager
def rust_router(upstream_port: int) -> Iterator[tuple[int, int, str]]:
    port = free_port()
    command = [
        str(RIVALS / "bin" / "python"), "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", f"http://127.0.0.1:{upstream_port}", "--policy", "round_robin",
    ]  # fmt: skip
    with _quiet(command, port) as pid:
        yield pid, port, "sk-bench"


@contextmanager
def _quiet(command: list[str], port: int) -> Iterator[int]:
    cores = sorted(os.sched_getaffinity(0))
    process = subprocess.Popen(
        ["taskset", "-c", str(cores[0]), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_port(port, 120)
        time.sleep(2)
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def rivals() -> None:
    if not (RIVALS / "bin" / "litellm").exists():
        print("Installing LiteLLM and vllm-router into an environment of their own …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(RIVALS)], check=True)
        pip = [str(RIVALS / "bin" / "pip"), "install", "-q", "litellm[proxy]==1.108.7", "vllm-router==0.1.17"]
        subprocess.run(pip, check=True)
    for name, start in (("LiteLLM 1.108.7", litellm), ("vllm-router 0.1.17", rust_router)):
        with upstream(1) as port, start(port) as (pid, own_port, key):
            found = costs(pid, own_port, key)
            show(f"The same load through {name}", [
                Figure("a request", found["request"], "µs"),
                Figure("a streamed chunk, paced", found["paced"], "µs"),
                Figure("a streamed chunk in bursts", found["burst"], "µs"),
            ])  # fmt: skip


def run() -> None:
    ours()
    if os.environ.get("RIVALS"):
        rivals()
