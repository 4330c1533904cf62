"""The real huggingface_hub against a hub of ours on the loopback."""

import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from inference.models.errors import SourceError
from inference.models.hub import HubSource
from inference.models.messages import File, Hub
from inference.models.progress import Silent

DATA = bytes(range(256)) * 100_000
FILE = File("m.gguf", len(DATA), hashlib.sha256(DATA).hexdigest(), Hub("org/repo", "m.gguf"))


class FakeHub(ThreadingHTTPServer):
    def __init__(self, etag: str = FILE.sha256, status: int = 200):
        self.etag, self.answer, self.ranges = etag, status, list[str]()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_HEAD(self) -> None:
        start = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
        self.send_response(self.server.answer if not start else 206)
        self.send_header("ETag", f'"{self.server.etag}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(DATA) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.ranges.append(self.headers.get("Range", ""))
        self.do_HEAD()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(DATA[int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0]) :])

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hub(request: pytest.FixtureRequest) -> Iterator[FakeHub]:
    server = FakeHub(**getattr(request, "param", {}))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Interrupting(Silent):
    def update(self, file: str, done: int, total: int) -> None:
        if done == 20 << 20:
            raise KeyboardInterrupt


def test_a_file_arrives_and_an_interrupted_one_is_continued(hub: FakeHub, tmp_path: Path) -> None:
    source = HubSource(hub.url)
    with pytest.raises(KeyboardInterrupt):
        source.fetch(FILE, tmp_path, Interrupting())
    path = source.fetch(FILE, tmp_path, Silent())
    assert path.read_bytes() == DATA
    assert path.is_relative_to(tmp_path)
    assert hub.ranges == ["", f"bytes={10 << 20}-"]


@pytest.mark.parametrize("hub", [{"etag": "0" * 64}], indirect=True)
def test_another_file_under_the_name_is_not_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="another file"):
        HubSource(hub.url).fetch(FILE, tmp_path, Silent())
    assert not hub.ranges


@pytest.mark.parametrize("hub", [{"status": 404}, {"status": 503}], indirect=True)
def test_a_refusal_is_one_line(hub: FakeHub, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        HubSource(hub.url).fetch(FILE, tmp_path, Silent())
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_hub_that_does_not_answer_costs_its_patience_and_no_more(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        started = time.monotonic()
        with pytest.raises(SourceError):
            HubSource(f"http://127.0.0.1:{mute.getsockname()[1]}", patience_s=0.5).fetch(FILE, tmp_path, Silent())
        assert time.monotonic() - started < 4
        closed = mute.getsockname()[1]
    with pytest.raises(SourceError):
        HubSource(f"http://127.0.0.1:{closed}").fetch(FILE, tmp_path, Silent())


def test_offline_mode_is_honoured(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(SourceError, match="HF_HUB_OFFLINE"):
        HubSource(hub.url).fetch(FILE, tmp_path, Silent())
    assert not hub.ranges
