import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from services.common import usage_messages as u
from services.common.errors import InvalidRequest
from services.ledger.journal import FileJournal
from services.ledger.writer import LedgerWriter
from tests.support.ledger import MemoryLedger, begun, used


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[FileJournal]:
    journal = FileJournal(tmp_path / "journal")
    yield journal
    journal.close()


def use(journal: FileJournal, *ids: str) -> None:
    for id in ids:
        journal.end(journal.begin(begun(id)), used(id))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def test_what_ends_reaches_the_ledger_and_leaves_the_journal(journal: FileJournal) -> None:
    ledger = MemoryLedger()
    async with LedgerWriter(journal, ledger, interval=0.001):
        for id in "abc":
            use(journal, id)
            await until(lambda id=id: id in ledger.kept)  # type: ignore[misc]
        await until(lambda: journal.backlog == 0)
        assert list(journal.closed()) == []


async def test_what_a_former_process_left_comes_first(tmp_path: Path) -> None:
    former = FileJournal(tmp_path)
    use(former, "a", "b")
    former.close()
    journal, ledger = FileJournal(tmp_path), MemoryLedger()
    use(journal, "c")
    await LedgerWriter(journal, ledger).flush()
    assert list(ledger.kept) == ["a", "b", "c"]
    assert journal.backlog == 0
    journal.close()


async def test_while_the_ledger_is_away_nothing_is_lost_and_it_is_said_once(journal: FileJournal) -> None:
    ledger = MemoryLedger()
    ledger.away = True
    with capture_logs() as logs:
        async with LedgerWriter(journal, ledger, interval=0.001):
            use(journal, "a")
            await until(lambda: ledger.calls >= 2)
            use(journal, "b")
            await until(lambda: ledger.calls >= 4)
            await until(lambda: REGISTRY.get_sample_value("antiphon_ledger_backlog") == 2.0)
            assert journal.backlog == 2
            assert len(journal.closed()) == 1
            ledger.away = False
            await until(lambda: len(ledger.kept) == 2)
            await until(lambda: REGISTRY.get_sample_value("antiphon_ledger_backlog") == 0.0)
    assert [line["event"] for line in logs] == ["ledger_away", "ledger_back"]


async def test_a_segment_that_the_ledger_has_but_the_journal_kept_counts_once(
    journal: FileJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = MemoryLedger()
    use(journal, "a")
    with monkeypatch.context() as patch:
        patch.setattr(FileJournal, "recorded", _interrupt)
        with pytest.raises(InterruptedError):
            await LedgerWriter(journal, ledger).flush()
    assert journal.backlog == 1
    await LedgerWriter(journal, ledger).flush()
    assert (ledger.calls, list(ledger.kept), journal.backlog) == (2, ["a"], 0)


def _interrupt(*_: object) -> None:
    raise InterruptedError


async def test_nothing_is_added_to_what_is_being_recorded(journal: FileJournal) -> None:
    class Slow(MemoryLedger):
        async def record(self, records: Sequence[u.UsageRecord]) -> None:
            use(journal, f"{records[0].id}+") if len(self.kept) < 5 else None
            await super().record(records)

    ledger = Slow()
    use(journal, "a")
    writer = LedgerWriter(journal, ledger)
    for flushes in range(1, 7):
        await writer.flush()
        assert len(ledger.kept) == flushes
    assert journal.backlog == 0


async def test_one_that_no_ledger_takes_does_not_hold_up_the_others(journal: FileJournal) -> None:
    class Strict(MemoryLedger):
        async def record(self, records: Sequence[u.UsageRecord]) -> None:
            if any(record.id.startswith("bad") for record in records):
                raise InvalidRequest("`cost` must be between 0 and 1.", param="cost")
            await super().record(records)

    ledger = Strict()
    use(journal, *"abc", "bad1", *"def", "bad2")
    with capture_logs() as logs:
        await LedgerWriter(journal, ledger).flush()
    assert sorted(ledger.kept) == list("abcdef")
    assert journal.backlog == 0
    kept = (journal._folder / "refused.jsonl").read_text()
    assert kept.count("\n") == 2
    assert '"bad1"' in kept
    assert '"bad2"' in kept
    assert {line["id"] for line in logs if line["event"] == "usage_record_refused"} == {"bad1", "bad2"}


async def test_the_end_waits_for_what_is_left(journal: FileJournal) -> None:
    ledger = MemoryLedger()
    async with LedgerWriter(journal, ledger, interval=100):
        await until(lambda: True)
        use(journal, "a")
    assert list(ledger.kept) == ["a"]


async def test_an_end_without_a_ledger_leaves_it_to_the_next_process(tmp_path: Path) -> None:
    journal, ledger = FileJournal(tmp_path), MemoryLedger()
    ledger.away = True
    with capture_logs() as logs:
        async with LedgerWriter(journal, ledger, interval=100):
            use(journal, "a")
    assert [line["records"] for line in logs if line["event"] == "usage_left_in_journal"] == [1]
    journal.close()
    again = FileJournal(tmp_path)
    ledger.away = False
    await LedgerWriter(again, ledger).flush()
    assert list(ledger.kept) == ["a"]
    again.close()


async def test_a_long_backlog_goes_in_parts(journal: FileJournal) -> None:
    sizes = []

    class Counting(MemoryLedger):
        async def record(self, records: Sequence[u.UsageRecord]) -> None:
            sizes.append(len(records))
            await super().record(records)

    ledger = Counting()
    use(journal, *(f"g{number}" for number in range(1_234)))
    await LedgerWriter(journal, ledger).flush()
    assert sizes == [500, 500, 234]
    assert len(ledger.kept) == 1_234
