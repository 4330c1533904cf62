"""The ports of limits and of the usage ledger."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from services.common import usage_messages as u


class Tiers(Protocol):
    """The tiers file as it is now. Not a service: every process reads the same file."""

    def tier(self, name: str) -> u.Tier:
        """Errors: `InvalidRequest` for a name that the file does not have."""
        ...

    def all(self) -> Mapping[str, u.Tier]: ...


class Prices(Protocol):
    def cost(self, record: u.UsageRecord) -> int:
        """Micro-units, rounded up once; a model without a price costs nothing."""
        ...


class Limiter(Protocol):
    async def reserve(self, ask: u.Ask) -> u.Reservation:
        """All buckets of a request at once, or none.

        Errors: `RateLimited` (waiting `retry_after` helps), `QuotaExceeded`, `InvalidRequest` for what no wait would let
        through, `Overloaded` while a budget cannot be checked.
        """
        ...

    async def settle(self, settlement: u.Settlement) -> None:
        """Give back what was reserved and not used. Never raises for what is unknown, expired or settled already."""
        ...

    async def renew(self, reservations: Sequence[u.Reservation]) -> None:
        """Their holder lives. One that is not renewed for `LIFETIME_S` counts as used in full, and frees its stream."""
        ...


class Journal(Protocol):
    """Usage that no other process knows yet, kept so that kill -9 loses none of it. Never waits for a disk."""

    def begin(self, usage: u.OpenUsage) -> int:
        """A slot for a generation that is about to run."""
        ...

    def count(self, slot: int, output_tokens: int) -> None:
        """What it has generated so far, in all. Called for every batch of tokens."""
        ...

    def end(self, slot: int, record: u.UsageRecord) -> None:
        """The generation is over: its record is kept until the ledger has it, and the slot is free."""
        ...

    def unfinished(self) -> Sequence[tuple[int, u.OpenUsage]]:
        """The generations that a former process left open, with the tokens that it had counted."""
        ...


class Ledger(Protocol):
    async def record(self, records: Sequence[u.UsageRecord]) -> None:
        """All or none, durable when this returns. A record whose id is known is left out: nothing counts twice."""
        ...

    async def spent(self, query: u.UsageQuery) -> int:
        """The cost of all that the query finds."""
        ...

    async def totals(self, query: u.UsageQuery) -> Sequence[u.UsageTotal]:
        """By time, then by group; hours and days without usage are left out."""
        ...

    async def records(self, query: u.UsageQuery) -> u.RecordPage: ...
