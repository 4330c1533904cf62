"""A file that operators change while the product runs."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from services.common.errors import InvalidRequest
from services.common.telemetry import log

T = TypeVar("T")
LOOK_EVERY_S = 1.0
Clock = Callable[[], float]


class ReloadedFile(Generic[T]):
    """What `parse` makes of the file, made again when the file has changed: looked at once a second at most, when asked.

    `parse` raises `InvalidRequest`, which names the key and the reason. At first it is raised; later the last good
    version stays, and a warning is logged once.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], clock: Clock = time.monotonic):
        self._path = path
        self._parse = parse
        self._clock = clock
        self._next_look = clock() + LOOK_EVERY_S
        self._seen = _identity(path)
        self._value = self._read()

    def get(self) -> T:
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + LOOK_EVERY_S
            self._look()
        return self._value

    def _look(self) -> None:
        # Taken before the file is read, so that a change while it is read is seen at the next look.
        identity = _identity(self._path)
        if identity == self._seen:
            return
        self._seen = identity
        try:
            self._value = self._read()
        except InvalidRequest as e:
            log.warning("file_not_reloaded", file=str(self._path), reason=e.message)
        else:
            log.info("file_reloaded", file=str(self._path))

    def _read(self) -> T:
        try:
            return self._parse(self._path.read_bytes())
        except OSError as e:
            raise InvalidRequest(f"{self._path} cannot be read: {e.strerror}.") from e
        except InvalidRequest as e:
            raise InvalidRequest(f"{self._path}: {e.message}", param=e.param) from e


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Not the time alone: a file that replaces another may be older, and two writes may share a tick of the clock."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
