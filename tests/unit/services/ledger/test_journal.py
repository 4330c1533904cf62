import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.common.errors import InvalidRequest, Overloaded
from services.ledger import disk, segments, slots
from services.ledger.journal import FileJournal
from services.ledger.slots import FIRST_SLOTS, MAX_PAYLOAD, Slots
from tests.support.ledger import begun, end_unfinished, ended_in, used


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    journal = FileJournal(tmp_path / "journal")
    yield journal
    journal.close()


def crashed(journal: FileJournal) -> FileJournal:
    """Another process finds what this one left. (What is in memory only is gone; only the lock is given back.)"""
    journal._lock.release()
    return FileJournal(journal._folder)


class Disk:
    """Of which a test says whether it is full; a write on a full one gets through in part."""

    full = False

    def pwrite(self, file: int, data: bytes, offset: int) -> int:
        if not self.full:
            return self._pwrite(file, data, offset)
        self._pwrite(file, data[: len(data) // 2], offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    def allocate(self, file: int, start: int, length: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        disk.allocate(file, start, length)

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self._pwrite = os.pwrite
        monkeypatch.setattr(segments.os, "pwrite", self.pwrite)
        for module in (segments, slots):
            monkeypatch.setattr(module, "allocate", self.allocate)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_what_has_ended_is_kept_and_its_slot_is_free(journal: FileJournal) -> None:
    slot = journal.begin(begun("a"))
    journal.count(slot, 5)
    journal.end(slot, used("a", output_tokens=7))
    assert journal.backlog == 1
    assert journal.begin(begun("b")) == slot
    assert ended_in(journal) == [used("a", output_tokens=7)]


def test_a_former_process_leaves_what_it_had_counted(journal: FileJournal) -> None:
    one, two = journal.begin(begun("a", prompt_tokens=3)), journal.begin(begun("b"))
    for tokens in (1, 255, 256, 65_536, 2**40):
        journal.count(one, tokens)
    journal.end(two, used("b"))
    after = crashed(journal)
    ((slot, usage),) = after.unfinished()
    assert (slot, usage.reservation) == (one, "res_a")
    assert usage.record == used("a", prompt_tokens=3, output_tokens=2**40)
    assert after.unfinished() == []
    assert after.begin(begun("c")) != slot
    after.end(slot, usage.record)
    assert [record.id for record in ended_in(after)] == ["b", "a"]
    assert [usage.record.id for _, usage in crashed(after).unfinished()] == ["c"]


def test_a_new_generation_in_a_used_slot_counts_from_nothing(journal: FileJournal) -> None:
    slot = journal.begin(begun("a"))
    journal.count(slot, 99)
    journal.end(slot, used("a"))
    journal.begin(begun("b"))
    assert [usage.record.output_tokens for _, usage in crashed(journal).unfinished()] == [0]


def test_one_that_dies_between_its_line_and_its_slot_had_ended(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = journal.begin(begun("a"))
    with monkeypatch.context() as patch:
        patch.setattr(Slots, "free", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            journal.end(slot, used("a", output_tokens=7))
    after = crashed(journal)
    assert after.unfinished() == []
    assert ended_in(after) == [used("a", output_tokens=7)]
    assert after.begin(begun("b")) == slot


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_recovery_that_dies_is_done_again(journal: FileJournal) -> None:
    journal.count(journal.begin(begun("a")), 4)
    for _ in range(3):
        journal = crashed(journal)
        assert [usage.record.output_tokens for _, usage in journal.unfinished()] == [4]
    journal = crashed(journal)
    end_unfinished(journal)
    journal = crashed(journal)
    assert end_unfinished(journal) == []
    assert [record.output_tokens for record in ended_in(journal)] == [4]


@pytest.mark.parametrize("torn", [b'{"id":"x","tenant":"o', b"\x00" * 5_000, b'{"id":"x\x00\x00'])
def test_only_a_torn_end_is_dropped(journal: FileJournal, torn: bytes) -> None:
    journal.end(journal.begin(begun("a")), used("a"))
    ended_in(journal)
    (segment,) = journal.closed()
    with segment.open("ab") as file:
        file.write(torn)
    after = crashed(journal)
    batch = after.read(after.closed()[0])
    assert (batch.records, batch.damaged) == ((used("a"),), ())
    assert after.backlog == 1


def test_a_damaged_line_is_told_from_a_torn_one(journal: FileJournal) -> None:
    for id in "ab":
        journal.end(journal.begin(begun(id)), used(id))
    ended_in(journal)
    (segment,) = journal.closed()
    segment.write_bytes(segment.read_bytes().replace(b'"id":"a"', b'"id":"a'))
    after = crashed(journal)
    batch = after.read(after.closed()[0])
    assert batch.records == (used("b"),)
    assert len(batch.damaged) == 1
    after.put_aside(batch.damaged)
    after.recorded(batch)
    assert after.backlog == 0
    assert b'"tenant":"org"' in (after._folder / "refused.jsonl").read_bytes()


def test_a_damaged_slot_does_not_keep_the_others_from_recovery(journal: FileJournal) -> None:
    one, _ = journal.begin(begun("a")), journal.begin(begun("b"))
    with (journal._folder / "slots").open("r+b") as file:
        file.seek(one * slots.SLOT_BYTES + 40)
        file.write(b"\xff\xff")
    after = crashed(journal)
    assert [usage.record.id for _, usage in after.unfinished()] == ["b"]
    assert after.begin(begun("c")) == one


def test_more_slots_come_when_they_are_needed(journal: FileJournal) -> None:
    many = 5 * FIRST_SLOTS
    for number in range(many):
        journal.count(journal.begin(begun(f"g{number}")), number)
    found = crashed(journal).unfinished()
    assert [usage.record.id for _, usage in found] == [f"g{usage.record.output_tokens}" for _, usage in found]
    assert len(found) == many


def test_segments_that_are_long_are_closed(journal: FileJournal) -> None:
    line = len(used("g0000", model="m" * 600).id) + 600
    for number in range(2 * segments.SEGMENT_BYTES // line):
        journal.end(journal.begin(begun(f"g{number:04}", model="m" * 600)), used(f"g{number:04}", model="m" * 600))
    assert len(journal.closed()) >= 2
    ids = [record.id for record in ended_in(journal)]
    assert ids == sorted(ids)
    assert len(set(ids)) == journal.backlog == 2 * segments.SEGMENT_BYTES // line


def test_texts_that_no_slot_holds_are_refused_by_name(journal: FileJournal) -> None:
    with pytest.raises(InvalidRequest) as failure:
        journal.begin(begun("a", project="p" * MAX_PAYLOAD))
    assert failure.value.param == "project"
    assert journal.begin(begun("a")) == 0


@given(text=st.text(alphabet=st.characters(), max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_text_comes_through(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    journal = FileJournal(tmp_path_factory.mktemp("journal"))
    journal.end(journal.begin(begun("a", model=text)), used("a", model=text))
    journal.begin(begun("b", model=text))
    after = crashed(journal)
    (record,) = ended_in(after)
    ((_, usage),) = after.unfinished()
    assert record.model == usage.record.model == text
    after.close()


def test_lone_surrogates_are_replaced(journal: FileJournal) -> None:
    journal.end(journal.begin(begun("a", model="\ud800")), used("a", model="m\udfff"))
    assert [record.model for record in ended_in(journal)] == ["m\ufffd"]


def test_a_slot_is_ended_once_and_by_its_own_generation(journal: FileJournal) -> None:
    slot = journal.begin(begun("a"))
    for id in ("b", ""):
        with pytest.raises(ValueError, match=str(slot)):
            journal.end(slot, used(id))
    journal.end(slot, used("a"))
    with pytest.raises(ValueError, match="not open"):
        journal.end(slot, used("a"))
    assert [record.id for record in ended_in(journal)] == ["a"]


def test_a_full_disk_refuses_what_has_not_begun_and_keeps_what_has(journal: FileJournal, full_disk: Disk) -> None:
    open_ = [journal.begin(begun(id)) for id in "abc"]
    full_disk.full = True
    journal.end(open_[0], used("a", output_tokens=1, model="a long name, half written"))
    journal.end(open_[1], used("b", output_tokens=2))
    for _ in range(2):
        with pytest.raises(Overloaded) as failure:
            journal.begin(begun("d"))
        assert failure.value.retry_after
    assert ended_in(journal) == []
    full_disk.full = False
    journal.end(open_[2], used("c", output_tokens=3))
    assert journal.begin(begun("d")) in open_
    assert [(record.id, record.output_tokens) for record in ended_in(journal)] == [("a", 1), ("b", 2), ("c", 3)]


def test_what_a_full_disk_kept_in_memory_is_charged_as_counted_after_a_crash(
    journal: FileJournal, full_disk: Disk
) -> None:
    slot = journal.begin(begun("a"))
    journal.count(slot, 5)
    full_disk.full = True
    journal.end(slot, used("a", output_tokens=5))
    full_disk.full = False
    after = crashed(journal)
    assert ended_in(after) == []
    assert [(usage.record.id, usage.record.output_tokens) for _, usage in after.unfinished()] == [("a", 5)]


def test_room_is_kept_for_all_that_have_begun(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    ids = [f"g{number:04}" for number in range(600)]
    open_ = [journal.begin(begun(id)) for id in ids]
    (segment,) = (tmp_path / "journal").glob("segment-*")
    room = os.stat(segment).st_blocks * 512
    for slot, id in zip(open_, ids, strict=True):
        journal.end(slot, used(id, model="m" * 700))
    assert os.stat(segment).st_blocks * 512 <= room
    journal.close()


def test_a_folder_has_one_process_and_only_its_user_reads_it(journal: FileJournal) -> None:
    journal.end(journal.begin(begun("a")), used("a"))
    with pytest.raises(InvalidRequest, match="Another process"):
        FileJournal(journal._folder)
    assert stat.S_IMODE(journal._folder.stat().st_mode) == 0o700
    files = [path for path in journal._folder.iterdir() if path.name != "lock"]
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidRequest, match="file/journal"):
        FileJournal(tmp_path / "file" / "journal")


def test_a_journal_that_was_closed_leaves_nothing_open(journal: FileJournal, tmp_path: Path) -> None:
    other = FileJournal(tmp_path / "other")
    other.end(other.begin(begun("a")), used("a"))
    other.close()
    again = FileJournal(tmp_path / "other")
    assert again.unfinished() == []
    assert again.backlog == 1
    assert [record.id for record in ended_in(again)] == ["a"]
    again.close()


def test_room_is_made_without_the_systems_help_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with path.open("r+b") as file:
        disk.allocate(file.fileno(), 0, 200_000)
        disk.allocate(file.fileno(), 100, 50)
    assert path.read_bytes() == b"before" + b"\x00" * 199_994
