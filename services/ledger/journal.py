"""Usage that no other process knows yet, in a folder of this process's own.

A generation under way has a slot in a memory-mapped file; its record, once it has ended, is a line in a segment. The line
is written before the slot is freed: whoever finds both after a crash knows by the id that the generation had ended. All
of it outlives the process, kill -9 included; the death of the machine may cost the last seconds.
"""

import os
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

from services.common.errors import InvalidRequest, Overloaded
from services.common.telemetry import log
from services.common.usage_messages import OpenUsage, UsageRecord
from services.ledger.segments import Segments, lines_of
from services.ledger.slots import MAX_PAYLOAD, Slots
from services.ledger.text import storable_record

Unfinished = tuple[int, OpenUsage]
_encode = msgspec.json.encode
_decode_usage = msgspec.json.Decoder(OpenUsage).decode
_decode_record = msgspec.json.Decoder(UsageRecord).decode


class _Named(Struct):
    id: str = ""


_decode_id = msgspec.json.Decoder(_Named).decode


class Batch(Struct, frozen=True):
    """A segment's records, and the lines of it that are none: those that a dying machine left."""

    segment: Path
    records: tuple[UsageRecord, ...]
    damaged: tuple[bytes, ...]


class FileJournal:
    """One process uses the folder. Errors: `InvalidRequest` for a folder that another uses, or that cannot be used."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._open: dict[int, str] = {}
        self._unwritten: deque[tuple[int, bytes]] = deque()
        self._disk_full = False
        self.backlog = 0
        """Ended records that the ledger does not have."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = FileLock(folder / "lock", timeout=0)
            self._lock.acquire()
            self._segments = Segments(folder)
            self._slots = Slots(folder / "slots")
            self._left = self._recovered()
        except Timeout:
            raise InvalidRequest(f"Another process uses the usage journal in {folder}.") from None
        except OSError as e:
            raise InvalidRequest(f"The usage journal in {folder} cannot be used: {e}.") from e

    def begin(self, usage: OpenUsage) -> int:
        """Errors: `Overloaded` while there is no room to keep what it will use, `InvalidRequest` for texts too long."""
        payload = self._payload(usage)
        try:
            self._write()
            self._segments.reserve(len(self._open) + 1)
            slot = self._slots.take(payload)
        except OSError as e:
            self._cannot_write(e)
            raise Overloaded("There is no room on the disk to keep account of usage.", retry_after=5) from e
        if self._disk_full:
            self._disk_full = False
            log.info("journal_writes_again", folder=str(self._folder))
        self._open[slot] = usage.record.id
        return slot

    def count(self, slot: int, output_tokens: int) -> None:
        self._slots.count(slot, output_tokens)

    def end(self, slot: int, record: UsageRecord) -> None:
        """Once for each slot: `ValueError` for a slot that is not open for this record."""
        if self._open.get(slot) != record.id:
            raise ValueError(f"Slot {slot} is not open for the usage record {record.id}.")
        line = _line(record)
        del self._open[slot]
        self._unwritten.append((slot, line))
        self.backlog += 1
        try:
            self._write()
        except OSError as e:
            # Kept in memory; and the slot stays, so that even now a crash does not cost the generation.
            self._cannot_write(e)

    def unfinished(self) -> Sequence[Unfinished]:
        left, self._left = self._left, []
        return left

    def closed(self) -> Sequence[Path]:
        """The segments to which nothing is added, oldest first."""
        return self._segments.closed

    def rotate(self) -> None:
        """What has ended by now is in closed segments, but for what the disk has no room for."""
        with suppress(OSError):
            self._write()
        self._segments.close_open()
        with suppress(OSError):
            self._segments.reserve(len(self._open))

    def read(self, segment: Path) -> Batch:
        records, damaged = [], []
        for line in lines_of(segment):
            try:
                records.append(_decode_record(line))
            except msgspec.DecodeError:
                damaged.append(line)
        return Batch(segment, tuple(records), tuple(damaged))

    def recorded(self, batch: Batch) -> None:
        """The ledger has it, or it was put aside."""
        self._segments.remove(batch.segment)
        self.backlog -= len(batch.records) + len(batch.damaged)

    def put_aside(self, lines: Iterable[bytes]) -> None:
        """What no ledger takes, for somebody to look at. Errors: `OSError`."""
        path = self._folder / "refused.jsonl"
        with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.writelines(line + b"\n" for line in lines)
        log.error("usage_refused", file=str(path))

    def close(self) -> None:
        with suppress(OSError):
            self._write()
        self._segments.close()
        self._slots.close()
        self._lock.release()

    def _recovered(self) -> list[Unfinished]:
        left = [
            (slot, usage)
            for slot, payload, counter in list(self._slots.taken())
            if (usage := self._usage(slot, payload, counter))
        ]
        ended = self._ended({usage.record.id for _, usage in left})
        for slot, usage in left:
            if usage.record.id in ended:
                self._slots.free(slot)
            else:
                self._open[slot] = usage.record.id
        return [(slot, usage) for slot, usage in left if slot in self._open]

    def _usage(self, slot: int, payload: bytes, counter: int) -> OpenUsage | None:
        try:
            usage = _decode_usage(payload)
        except msgspec.DecodeError:
            self.put_aside([payload])
            self._slots.free(slot)
            return None
        record = msgspec.structs.replace(usage.record, output_tokens=counter)
        return msgspec.structs.replace(usage, record=record)

    def _ended(self, ids: set[str]) -> set[str]:
        """Those of the ids whose record a segment has. Counts the backlog in passing."""
        ended = set()
        for segment in self._segments.closed:
            for line in lines_of(segment):
                self.backlog += 1
                with suppress(msgspec.DecodeError):
                    if ids and (id := _decode_id(line).id) in ids:
                        ended.add(id)
        return ended

    def _payload(self, usage: OpenUsage) -> bytes:
        try:
            payload = _encode(usage)
        except UnicodeEncodeError:
            payload = _encode(msgspec.structs.replace(usage, record=storable_record(usage.record)))
        if len(payload) > MAX_PAYLOAD:
            texts = {name: text for name, text in msgspec.structs.asdict(usage.record).items() if isinstance(text, str)}
            longest = max(texts, key=lambda name: len(texts[name]))
            raise InvalidRequest(f"`{longest}` is too long to keep account of.", param=longest)
        return payload

    def _write(self) -> None:
        while self._unwritten:
            slot, line = self._unwritten[0]
            self._segments.append(line)
            self._slots.free(slot)
            self._unwritten.popleft()

    def _cannot_write(self, error: OSError) -> None:
        if not self._disk_full:
            log.error("journal_cannot_write", folder=str(self._folder), reason=error.strerror)
        self._disk_full = True


def _line(record: UsageRecord) -> bytes:
    try:
        return _encode(record) + b"\n"
    except UnicodeEncodeError:
        return _encode(storable_record(record)) + b"\n"
