"""What this process has done is in every answer about usage, whenever the journal is next written."""

from pathlib import Path

from services.common.sql import migrate, open_database
from services.common.usage_messages import OpenUsage, UsageQuery, UsageRecord
from services.ledger.current import CurrentLedger
from services.ledger.journal import FileJournal
from services.ledger.service import LedgerService
from services.ledger.store import MIGRATIONS, LedgerStore
from services.ledger.writer import LedgerWriter


async def test_answers_hold_what_the_journal_has_not_yet_given_away(tmp_path: Path) -> None:
    engine = open_database(f"sqlite+aiosqlite:///{tmp_path / 'ledger.db'}")
    await migrate(engine, "ledger", MIGRATIONS)
    recorded = LedgerService(LedgerStore(engine))
    journal = FileJournal(tmp_path / "usage")
    async with LedgerWriter(journal, recorded, interval=3600.0) as writer:
        ledger = CurrentLedger(recorded, writer)
        query = UsageQuery(tenant="t", start=0, end=10)
        for number, ask in enumerate((ledger.spent, ledger.totals, ledger.records)):
            record = UsageRecord(id=f"r{number}", tenant="t", at=1.0, cost=1)
            journal.end(journal.begin(OpenUsage(record=record)), record)
            await ask(query)
            assert await recorded.spent(query) == number + 1
    journal.close()
    await engine.dispose()
