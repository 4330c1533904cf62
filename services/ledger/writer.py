"""Takes ended usage from this process's journal to the ledger."""

import asyncio
from collections.abc import Sequence
from types import TracebackType

import msgspec
from prometheus_client import Gauge

from services.common.errors import AntiphonError, InvalidRequest
from services.common.telemetry import log
from services.common.usage_messages import UsageRecord
from services.common.usage_ports import Ledger
from services.ledger.journal import Batch, FileJournal

AT_ONCE = 500
MAX_WAIT_S = 15.0
LAST_CHANCE_S = 5.0
BACKLOG = Gauge("antiphon_ledger_backlog", "Usage records in this process's journal that the ledger does not have")


class LedgerWriter:
    """Works from `async with` on, beginning with what a former process left.

    While the ledger is away, records stay in the journal. A segment goes only when the ledger has it: after a crash
    in between it comes again, and ids keep it from counting twice.
    """

    def __init__(self, journal: FileJournal, ledger: Ledger, interval: float = 0.5):
        self._journal = journal
        self._ledger = ledger
        self._interval = interval
        self._one_at_a_time = asyncio.Lock()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "LedgerWriter":
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What the ledger does not take within `LAST_CHANCE_S` is for the next process."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(LAST_CHANCE_S):
                await self.flush()
        except Exception as e:
            log.warning("usage_left_in_journal", records=self._journal.backlog, cause=str(e))

    async def flush(self) -> None:
        """All that has ended by now is in the ledger. Errors: the ledger's; what it did not take stays."""
        async with self._one_at_a_time:
            try:
                # Old ones first: while the ledger is away, no short ones are added to them.
                await self._record_closed()
                self._journal.rotate()
                await self._record_closed()
            finally:
                BACKLOG.set(self._journal.backlog)

    async def _work(self) -> None:
        while True:
            try:
                await self.flush()
            except Exception as e:
                self._failed(e)
            else:
                self._succeeded()
            await asyncio.sleep(min(self._interval * 2**self._failures, max(MAX_WAIT_S, self._interval)))

    async def _record_closed(self) -> None:
        for segment in self._journal.closed():
            await self._record(await asyncio.to_thread(self._journal.read, segment))

    async def _record(self, batch: Batch) -> None:
        refused = list(batch.damaged)
        for start in range(0, len(batch.records), AT_ONCE):
            refused += await self._refused(batch.records[start : start + AT_ONCE])
        if refused:
            self._journal.put_aside(refused)
        self._journal.recorded(batch)

    async def _refused(self, records: Sequence[UsageRecord]) -> list[bytes]:
        """Record them. One that the ledger will never take must not hold up the others: those are returned."""
        try:
            await self._ledger.record(records)
        except InvalidRequest as e:
            if len(records) > 1:
                half = len(records) // 2
                return await self._refused(records[:half]) + await self._refused(records[half:])
            log.error("usage_record_refused", id=records[0].id, reason=e.message)
            return [msgspec.json.encode(records[0])]
        return []

    def _failed(self, error: Exception) -> None:
        self._failures = min(self._failures + 1, 10)
        if self._failures == 1:
            unexpected = None if isinstance(error, AntiphonError) else error
            log.error("ledger_away", records=self._journal.backlog, cause=str(error), exc_info=unexpected)

    def _succeeded(self) -> None:
        if self._failures:
            log.info("ledger_back")
        self._failures = 0
