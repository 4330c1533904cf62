"""The ports `Accounts` and `Sessions`, kept by another process."""

from collections.abc import Sequence

import aiohttp

from services.common import messages as m
from services.common.http import Peer


class AccountsClient:
    def __init__(self, base_url: str, session: aiohttp.ClientSession):
        self._peer = Peer(f"{base_url.rstrip('/')}/accounts", session)

    async def authenticate(self, secret: str) -> m.Principal:
        return await self._peer.call("authenticate", secret, m.Principal)

    async def create_key(self, request: m.NewKey) -> m.ApiKey:
        return await self._peer.call("create_key", request, m.ApiKey)

    async def keys(self, tenant: str) -> Sequence[m.ApiKey]:
        return await self._peer.call("keys", tenant, tuple[m.ApiKey, ...])

    async def revoke_key(self, key: m.MessageRef) -> None:
        await self._peer.call("revoke_key", key, None)


class SessionsClient:
    def __init__(self, base_url: str, session: aiohttp.ClientSession):
        self._peer = Peer(f"{base_url.rstrip('/')}/sessions", session)

    async def open(self, tenant: str) -> str:
        return await self._peer.call("open", tenant, str)

    async def resolve(self, token: str) -> m.Principal:
        return await self._peer.call("resolve", token, m.Principal)

    async def close(self, token: str) -> None:
        await self._peer.call("close", token, None)
