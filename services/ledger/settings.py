"""Settings of the usage ledger."""

from pathlib import Path

from pydantic import Field

from services.common.settings import Settings


class LedgerSettings(Settings):
    prices: Path | None = Field(None, description="The price table; None: the one that is shipped, where all is free.")
    journal_interval: float = Field(
        0.5, gt=0, description="Seconds between two writes of usage from the local journal to the ledger."
    )
