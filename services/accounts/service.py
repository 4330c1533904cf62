"""API keys and the sessions of the web app. Only digests of their secrets are kept."""

import secrets
import time
from collections.abc import Callable, Sequence

import msgspec

from services.accounts.secret import SecretKind
from services.accounts.store import AccountStore
from services.common import messages as m
from services.common.errors import InvalidApiKey, InvalidRequest, NotFound

SESSION_S = 30 * 24 * 3600.0
MAX_NAME = 200
Clock = Callable[[], float]


class AccountService:
    """Asks the database each time: wrap it in `CachedAccounts`. The pepper is the same in every replica, for ever."""

    def __init__(self, store: AccountStore, pepper: bytes, clock: Clock = time.time):
        self._store = store
        self._secrets = SecretKind("sk-", pepper)
        self._clock = clock

    async def authenticate(self, secret: str) -> m.Principal:
        digest = self._secrets.digest(secret)
        key = await self._store.key_with(digest) if digest else None
        if key is None or key.revoked:
            raise InvalidApiKey("Incorrect API key provided.")
        return m.Principal(tenant=key.tenant, key_id=key.id)

    async def create_key(self, request: m.NewKey) -> m.ApiKey:
        if len(request.name) > MAX_NAME or not request.name.isprintable():
            raise InvalidRequest(f"A key's name has at most {MAX_NAME} printable characters.", param="name")
        secret = self._secrets.new()
        key = m.ApiKey(
            id=f"key_{secrets.token_hex(16)}",
            tenant=request.tenant,
            name=request.name,
            hint=secret[-4:],
            created=self._clock(),
        )
        await self._store.add_key(key, str(self._secrets.digest(secret)))
        return msgspec.structs.replace(key, secret=secret)

    async def keys(self, tenant: str) -> Sequence[m.ApiKey]:
        return await self._store.keys_of(tenant)

    async def revoke_key(self, key: m.MessageRef) -> None:
        if not (key.id.isprintable() and await self._store.revoke(key.tenant, key.id)):
            raise NotFound("There is no such key.")


class SessionTokens:
    """Asks the database each time: wrap it in `CachedSessions`."""

    def __init__(self, store: AccountStore, pepper: bytes, clock: Clock = time.time):
        self._store = store
        self._tokens = SecretKind("ses-", pepper)
        self._clock = clock

    async def open(self, tenant: str) -> str:
        token, now = self._tokens.new(), self._clock()
        await self._store.remove_expired_sessions(now)
        await self._store.add_session(str(self._tokens.digest(token)), tenant, now + SESSION_S)
        return token

    async def resolve(self, token: str) -> m.Principal:
        digest = self._tokens.digest(token)
        tenant = await self._store.session_tenant(digest, self._clock()) if digest else None
        if tenant is None:
            raise InvalidApiKey("The session is unknown or has ended.")
        return m.Principal(tenant=tenant)

    async def close(self, token: str) -> None:
        if digest := self._tokens.digest(token):
            await self._store.remove_session(digest)
