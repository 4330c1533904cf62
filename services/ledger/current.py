"""Policy around the port: who asks this process sees what this process has done."""

from collections.abc import Sequence

from services.common import usage_messages as u
from services.common.errors import Overloaded
from services.common.usage_ports import Ledger
from services.ledger.writer import LedgerWriter


class CurrentLedger:
    """Takes the journal to the ledger before each answer from it. Other processes' journals are up to half a second behind."""

    def __init__(self, ledger: Ledger, writer: LedgerWriter):
        self._ledger = ledger
        self._writer = writer

    async def record(self, records: Sequence[u.UsageRecord]) -> None:
        await self._ledger.record(records)

    async def spent(self, query: u.UsageQuery) -> int:
        await self._flush()
        return await self._ledger.spent(query)

    async def totals(self, query: u.UsageQuery) -> Sequence[u.UsageTotal]:
        await self._flush()
        return await self._ledger.totals(query)

    async def records(self, query: u.UsageQuery) -> u.RecordPage:
        await self._flush()
        return await self._ledger.records(query)

    async def _flush(self) -> None:
        try:
            await self._writer.flush()
        except OSError as e:
            raise Overloaded("The usage journal cannot be read now.", retry_after=5) from e
