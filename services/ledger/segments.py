"""Ended usage, in files to which lines are added until one is closed, and which go once the ledger has them."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from services.ledger.disk import allocate

SEGMENT_BYTES = 1 << 20
"""A segment that is as long is closed."""
LINE_BYTES = 1024
"""What a record may take, for the room that is kept."""
ROOM_STEP = 1 << 18


class Segments:
    """JSON lines. Written without buffering, so that a line outlives the process when `append` has returned."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._closed = sorted(folder.glob("segment-*.jsonl"))
        self._next = 1 + max((int(path.stem.partition("-")[2]) for path in self._closed), default=0)
        self._file = -1
        self._path: Path
        self._size = self._allocated = 0

    @property
    def closed(self) -> list[Path]:
        """Oldest first. Nothing is added to them."""
        return list(self._closed)

    def reserve(self, lines: int) -> None:
        """Room for so many more lines in the open segment. Errors: `OSError` where the disk has none."""
        if self._file < 0:
            self._open()
        missing = self._size + lines * LINE_BYTES - self._allocated
        if missing > 0:
            length = -(-missing // ROOM_STEP) * ROOM_STEP
            allocate(self._file, self._allocated, length)
            self._allocated += length

    def append(self, line: bytes) -> None:
        """Errors: `OSError`; then nothing was added."""
        if self._file < 0:
            self._open()
        # What an earlier attempt left half written is written over, so that only a torn end can stay behind.
        done = 0
        while done < len(line):
            done += os.pwrite(self._file, line[done:], self._size + done)
        self._size += len(line)
        self._allocated = max(self._allocated, self._size)
        if self._size >= SEGMENT_BYTES:
            self.close_open()

    def close_open(self) -> None:
        """The open segment, if there is something in it, is now one of the closed."""
        if self._size:
            with suppress(OSError):  # its reader bears the empty end
                os.ftruncate(self._file, self._size)
            os.close(self._file)
            self._closed.append(self._path)
            self._file, self._size, self._allocated = -1, 0, 0

    def remove(self, segment: Path) -> None:
        segment.unlink(missing_ok=True)
        self._closed.remove(segment)

    def close(self) -> None:
        self.close_open()
        if self._file >= 0:
            os.close(self._file)
            self._path.unlink(missing_ok=True)
            self._file = -1

    def _open(self) -> None:
        path = self._folder / f"segment-{self._next:012}.jsonl"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self._path = path
        self._next += 1


def lines_of(segment: Path) -> Iterator[bytes]:
    """Whole lines. After the last one there may be room that was never used, and a line that its writer died over."""
    whole, _, _ = segment.read_bytes().rpartition(b"\n")
    return (line for line in whole.split(b"\n") if line)
