"""Generations under way, in a memory-mapped file: what is written there outlives the process at once."""

import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from services.common.telemetry import log
from services.ledger.disk import allocate

SLOT_BYTES = 1024
FIRST_SLOTS = 64
_HEAD = struct.Struct("=B3xIQI4x")
"""In use, length of the payload, counter, CRC-32 of the payload."""
_COUNTER = struct.Struct("@Q")
# Native, because only that stores all eight bytes at once: a process may be killed between any two instructions.
_COUNTER_AT = 8
MAX_PAYLOAD = SLOT_BYTES - _HEAD.size
MAX_COUNT = 2**64 - 1


class Slots:
    """Slots of `SLOT_BYTES`, numbered from 0. Errors of the disk come from `take` alone, as `OSError`."""

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        # Allocated, not only as long as that: a page for which the disk has no room kills whoever writes to it.
        size = max(FIRST_SLOTS, os.fstat(self._file).st_size // SLOT_BYTES) * SLOT_BYTES
        allocate(self._file, 0, size)
        self._map = mmap.mmap(self._file, size)
        self._free = [slot for slot in range(len(self) - 1, -1, -1) if not self._map[slot * SLOT_BYTES]]

    def __len__(self) -> int:
        return len(self._map) // SLOT_BYTES

    def take(self, payload: bytes) -> int:
        """A slot with the payload, of `MAX_PAYLOAD` bytes at most, and a counter of 0."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        start = slot * SLOT_BYTES
        self._map[start + _HEAD.size : start + _HEAD.size + len(payload)] = payload
        _HEAD.pack_into(self._map, start, 0, len(payload), 0, zlib.crc32(payload))
        # In use last: a process that dies before this line has not begun.
        self._map[start] = 1
        return slot

    def count(self, slot: int, number: int) -> None:
        _COUNTER.pack_into(self._map, slot * SLOT_BYTES + _COUNTER_AT, number)

    def free(self, slot: int) -> None:
        self._map[slot * SLOT_BYTES] = 0
        self._free.append(slot)

    def taken(self) -> Iterator[tuple[int, bytes, int]]:
        """(slot, payload, counter) of all that are in use."""
        for slot in range(len(self)):
            start = slot * SLOT_BYTES
            used, length, counter, crc = _HEAD.unpack_from(self._map, start)
            if not used:
                continue
            payload = self._map[start + _HEAD.size : start + _HEAD.size + min(length, MAX_PAYLOAD)]
            if zlib.crc32(payload) == crc:
                yield slot, payload, counter
            else:
                log.error("usage_slot_damaged", slot=slot, counted=counter)
                self.free(slot)

    def close(self) -> None:
        self._map.close()
        os.close(self._file)

    def _grow(self) -> None:
        old, new = len(self), 2 * len(self)
        allocate(self._file, old * SLOT_BYTES, old * SLOT_BYTES)
        grown = mmap.mmap(self._file, new * SLOT_BYTES)
        self._map.close()
        self._map = grown
        self._free.extend(range(new - 1, old - 1, -1))
