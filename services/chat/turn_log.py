"""The log of running turns as files: one a turn, appended without waiting for a disk.

What was written survives kill -9 of this process, because the kernel holds it; the next start saves it.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path


class FileTurnLog:
    def __init__(self, folder: Path):
        self._folder = folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._open: dict[str, int] = {}

    def append(self, turn_id: str, frame: bytes) -> None:
        fd = self._open.get(turn_id)
        if fd is None:
            fd = os.open(self._path(turn_id), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._open[turn_id] = fd
        os.write(fd, frame + b"\n")

    def close(self, turn_id: str) -> None:
        fd = self._open.pop(turn_id, None)
        if fd is not None:
            os.close(fd)
        self._path(turn_id).unlink(missing_ok=True)

    def unfinished(self) -> Sequence[tuple[str, Sequence[bytes]]]:
        return [(path.stem, tuple(_whole_lines(path))) for path in sorted(self._folder.glob("*.log"))]

    def _path(self, turn_id: str) -> Path:
        return self._folder / f"{turn_id}.log"


def _whole_lines(path: Path) -> Iterator[bytes]:
    """Without a last line that was cut off in the middle."""
    *lines, _cut = path.read_bytes().split(b"\n")
    yield from lines
