"""Who is signed in to the web app. Only digests of the tokens are kept."""

import time
from collections.abc import Callable

from services.accounts.secret import SecretKind, bad_session
from services.accounts.session_store import SessionQueries
from services.accounts.store import AccountStore
from services.common.account_messages import AuditEntry, NewSession, Principal, Ref
from services.common.texts import storable

SESSION_S = 30 * 24 * 3600.0
Clock = Callable[[], float]


class SessionTokens:
    """Asks the database each time: wrap it in `CachedSessions`. The pepper is the same in every replica, for ever."""

    def __init__(self, store: AccountStore, pepper: bytes, clock: Clock = time.time):
        self._store = store
        self._tokens = SecretKind("ses-", pepper)
        self._clock = clock

    async def open(self, session: NewSession) -> str:
        token, now = self._tokens.new(), self._clock()
        async with self._store.writing(SessionQueries) as db:
            await db.sweep(now)
            await db.add(self._tokens.digest_of_any(token), session, now + SESSION_S)
        return token

    async def resolve(self, token: str) -> Principal:
        principal = None
        if digest := self._tokens.digest(token):
            async with self._store.reading(SessionQueries) as db:
                principal = await db.principal(digest, self._clock())
        if principal is None:
            raise bad_session()
        return principal

    async def close(self, token: str) -> None:
        if digest := self._tokens.digest(token):
            async with self._store.writing(SessionQueries) as db:
                await db.remove(digest)

    async def close_all(self, user: Ref) -> None:
        entry = AuditEntry(
            tenant=user.tenant, actor=user.actor, action="session.close_all", target=user.id, at=self._clock()
        )
        async with self._store.writing(SessionQueries) as db:
            await db.remove_all(storable(user.tenant), storable(user.id))
            await db.note(entry)
