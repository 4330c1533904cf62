"""Who is signed in to the web app. Only digests of the tokens are kept."""

import time
from collections.abc import Callable

from services.accounts.chain import Chain
from services.accounts.secret import SecretKind
from services.accounts.session_store import SessionStore
from services.common.account_messages import AuditEntry, NewSession, Principal, Ref
from services.common.errors import NotFound, NotSignedIn

SESSION_S = 30 * 24 * 3600.0
Clock = Callable[[], float]


class SessionTokens:
    """Asks the database each time: wrap it in `CachedSessions`. The pepper is the same in every replica, for ever."""

    def __init__(self, store: SessionStore, pepper: bytes, clock: Clock = time.time):
        self._store = store
        self._tokens = SecretKind("ses-", pepper)
        self._chain = Chain(pepper)
        self._clock = clock

    async def open(self, session: NewSession) -> str:
        token, now = self._tokens.new(), self._clock()
        await self._store.add(str(self._tokens.digest(token)), session, now + SESSION_S, now)
        return token

    async def resolve(self, token: str) -> Principal:
        digest = self._tokens.digest(token)
        principal = await self._store.principal(digest, self._clock()) if digest else None
        if principal is None:
            raise NotSignedIn("The session is unknown or has ended. Sign in again.")
        return principal

    async def close(self, token: str) -> None:
        if digest := self._tokens.digest(token):
            await self._store.remove(digest)

    async def close_all(self, user: Ref) -> None:
        if not (user.id.isprintable() and user.tenant.isprintable()):
            raise NotFound("There is no such user.")
        entry = AuditEntry(
            tenant=user.tenant, actor=user.actor, action="session.close_all", target=user.id, at=self._clock()
        )
        await self._store.remove_all(user, self._chain, entry)
