"""The port `Ledger`, kept by another process."""

from collections.abc import Sequence

import aiohttp

from services.common import usage_messages as u
from services.common.http import Peer


class LedgerClient:
    def __init__(self, base_url: str, session: aiohttp.ClientSession):
        self._peer = Peer(f"{base_url.rstrip('/')}/ledger", session)

    async def record(self, records: Sequence[u.UsageRecord]) -> None:
        await self._peer.call("record", records, None)

    async def spent(self, query: u.UsageQuery) -> int:
        return await self._peer.call("spent", query, int)

    async def totals(self, query: u.UsageQuery) -> Sequence[u.UsageTotal]:
        return await self._peer.call("totals", query, tuple[u.UsageTotal, ...])

    async def records(self, query: u.UsageQuery) -> u.RecordPage:
        return await self._peer.call("records", query, u.RecordPage)
