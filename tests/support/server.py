"""The product as a child process: started as a person starts it, asked over its own port, ended by a signal."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

MODEL = "smollm2-135m-instruct"
SIMULATED = "simulated"
EMBEDDINGS = "all-minilm-l6-v2"
START_S = 240.0
"""A first start may have to fetch the model."""

ANTIPHON = Path(sys.executable).with_name("antiphon")
_KEPT = ("ANTIPHON_MODELS", "ANTIPHON_MODEL_SOURCES")
_RUNNING = re.compile(r'^antiphon_engine_running\{worker="[^"]*"\} (\S+)$', re.MULTILINE)

servers: list["Server"] = []
"""Those that run now: their logs are shown with a test that fails."""


def environment(**settings: str) -> dict[str, str]:
    """This process's, without the settings that a developer may have made for a server of his own."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ANTIPHON_") or k in _KEPT}
    return clean | {"PYTHONUNBUFFERED": "1"} | settings


class Server:
    """`with Server(home) as server:` runs until the block ends. Settings are `ANTIPHON_…` without the prefix.

    Nothing is left running, whatever happens in the block. The logs stay in `home` beside its data.
    """

    def __init__(self, home: Path, *options: str, model: str = MODEL, **settings: str):
        self.home = home
        self.model = model
        self.url = self.key = self.signin = self.printed = ""
        self.command = [str(ANTIPHON), "serve", "--port", "0", "--model", model, *options]
        self._settings = {"LOG_LEVEL": "info"} | settings
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end()

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process
        return self._process

    @property
    def log_file(self) -> Path:
        return self.home / "stderr.log"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        named = {f"ANTIPHON_{name}": value for name, value in self._settings.items()}
        output = self.home / "stdout.log"
        with output.open("wb") as out, self.log_file.open("ab") as err:
            self._process = subprocess.Popen(
                self.command, env=environment(ANTIPHON_HOME=str(self.home), **named), cwd=self.home, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err,
            )  # fmt: skip
        servers.append(self)
        try:
            until(lambda: self._announced(output), START_S, "the server's start", pause=0.02)
        except BaseException:
            self.end()
            raise

    def _announced(self, output: Path) -> bool:
        self.printed = output.read_text()
        if self.process.poll() is not None:
            raise AssertionError(f"The server ended with {self.process.returncode}:\n{self.log[-4000:]}")
        url = re.search(r"^URL: +(http://[^\s/]+)/", self.printed, re.MULTILINE)
        if not url or "Try:" not in self.printed:
            return False
        self.url = url[1]
        link = re.search(r"http://\S+/signin\?token=[^\s)]+", self.printed)
        self.signin = link[0] if link else ""
        key = re.search(r"^API key: (sk-[A-Za-z0-9_-]{20,})$", self.printed, re.MULTILINE)
        self.key = key[1] if key else self.key
        return True

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def auth(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def client(self, **options: Any) -> httpx.Client:
        """With the key; on the server's root."""
        return httpx.Client(base_url=self.url, headers=self.auth, timeout=60, **options)

    def running(self) -> int:
        """Generations in the engine now, by the engine's own count."""
        found = _RUNNING.search(httpx.get(f"{self.url}/metrics").text)
        assert found, "no antiphon_engine_running on /metrics"
        return int(float(found[1]))

    def engine_pid(self) -> int:
        [pid] = children(self.process.pid)
        return pid

    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def terminate(self, patience: float = 40.0) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(patience)

    def kill(self) -> None:
        self.process.kill()
        self.wait(5)

    def wait(self, patience: float) -> int:
        return self.process.wait(patience)

    def end(self) -> None:
        """Leave nothing of it running."""
        if self in servers:
            servers.remove(self)
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self.terminate()
        except subprocess.TimeoutExpired:
            self.kill()  # its engine ends by itself, because its standard input closes
            raise


def children(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def until(happens: Callable[[], Any], patience: float, what: str, pause: float = 0.01) -> float:
    """Seconds that it took."""
    began = time.monotonic()
    while not happens():
        assert time.monotonic() - began < patience, f"{what} did not happen within {patience} s"
        time.sleep(pause)
    return time.monotonic() - began


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    began = time.monotonic()
    yield lambda: time.monotonic() - began
