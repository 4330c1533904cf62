"""The weights on disk: <root>/<model>/<file>, each beside a stamp that spares the next start from hashing it."""

import contextlib
import hashlib
import shutil
from pathlib import Path
from typing import Literal

import msgspec
from filelock import FileLock
from msgspec import Struct

from inference.models.messages import File, Model

Status = Literal["pulled", "unverified", "partial", "no"]


class Check(Struct, frozen=True):
    status: Literal["ok", "missing", "damaged"]
    reason: str = ""


class Stamp(Struct, frozen=True):
    """The file had this hash when it had this size and time of change."""

    bytes: int
    mtime_ns: int
    sha256: str


class Cache:
    def __init__(self, root: Path):
        self.root = root

    def folder(self, model: Model) -> Path:
        return self.root / model.name

    def partial(self, model: Model) -> Path:
        return self.folder(model) / ".partial"

    def path(self, model: Model, file: File) -> Path:
        return Path(model.local) if model.local else self.folder(model) / file.name

    def paths(self, model: Model) -> dict[str, Path]:
        return {file.name: self.path(model, file) for file in model.files}

    def lock(self, model: Model) -> FileLock:
        """Held by whoever changes a model's folder. It lies outside that folder, which `remove` deletes."""
        locks = self.root / ".locks"
        locks.mkdir(parents=True, exist_ok=True)
        return FileLock(locks / f"{model.name}.lock")

    def check(self, model: Model, file: File, *, rehash: bool = False) -> Check:
        """Hashes only what has no valid stamp, unless `rehash`; leaves a stamp on what is whole."""
        path = self.path(model, file)
        if not path.is_file():
            return Check("missing", "is not there")
        if not file.sha256 or (not rehash and self._stamped(path, file)):
            return Check("ok")
        if (size := path.stat().st_size) != file.bytes:
            found = f"has {size:,} bytes, not {file.bytes:,}"
        elif (digest := sha256(path)) != file.sha256:
            found = f"has sha256 {digest}, not {file.sha256}"
        else:
            self.stamp(path, file)
            return Check("ok")
        with contextlib.suppress(OSError):
            _stamp_path(path).unlink(missing_ok=True)
        return Check("damaged", found)

    def stamp(self, path: Path, file: File) -> None:
        stat = path.stat()
        stamp = Stamp(bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=file.sha256)
        # A cache baked into a read-only image works all the same: it is hashed at each start.
        with contextlib.suppress(OSError):
            _stamp_path(path).write_bytes(msgspec.json.encode(stamp))

    def status(self, model: Model) -> Status:
        """A glance, without hashing."""
        present = [path for path in self.paths(model).values() if path.is_file()]
        if len(present) < len(model.files):
            return "partial" if present or used(self.partial(model)) else "no"
        stamped = all(not file.sha256 or self._stamped(self.path(model, file), file) for file in model.files)
        return "pulled" if stamped else "unverified"

    def remove(self, model: Model) -> int:
        """Deletes the model's folder and returns the bytes freed."""
        if not self.folder(model).is_dir():
            return 0
        with self.lock(model):
            freed = used(self.folder(model))
            shutil.rmtree(self.folder(model))
        return freed

    def _stamped(self, path: Path, file: File) -> bool:
        try:
            stamp = msgspec.json.decode(_stamp_path(path).read_bytes(), type=Stamp)
        except (OSError, msgspec.MsgspecError):
            return False
        stat = path.stat()
        return stamp == Stamp(bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=file.sha256)


def sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def used(folder: Path) -> int:
    """Bytes of the files below a folder that others may be changing meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def _stamp_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.verified.json")
