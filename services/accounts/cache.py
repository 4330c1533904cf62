"""Policy around the ports: who was recognised a moment ago is recognised without asking again."""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from services.accounts.secret import bad_key, bad_session
from services.common import account_messages as a
from services.common.account_ports import Keys, Sessions
from services.common.errors import InvalidApiKey, Overloaded

FRESH_S = 3.0
"""With a slow answer on top, a key that is revoked in another process is refused within five seconds."""
STALE_S = 60.0
CAPACITY = 10_000
MAX_SECRET = 200
Clock = Callable[[], float]
Chosen = Callable[[a.Principal], bool]


class Recognised:
    """The principals of secrets that were good at most FRESH_S ago, or STALE_S while nobody can be asked.

    Only good secrets are remembered, the least recently checked is dropped first, and each only as a digest whose key
    dies with the process. What ends by itself (a key that expires), or elsewhere, ends here when it is no longer fresh.
    """

    def __init__(self, clock: Clock, capacity: int, refusal: Callable[[], InvalidApiKey]):
        self._clock = clock
        self._capacity = capacity
        self._refusal = refusal
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, tuple[float, a.Principal]] = OrderedDict()
        self._drops = 0

    async def lookup(self, secret: str, ask: Callable[[str], Awaitable[a.Principal]]) -> a.Principal:
        if len(secret) > MAX_SECRET or not secret.isascii():
            raise self._refusal()
        digest = self._digest(secret)
        now, drops = self._clock(), self._drops
        since, known = self._known.get(digest, (now, None))
        age = now - since
        if known and age < FRESH_S:
            return known
        try:
            principal = await ask(secret)
        except InvalidApiKey:
            self._known.pop(digest, None)
            raise
        except Overloaded:
            if known and age < STALE_S and digest in self._known:
                return known
            raise
        # What was dropped while the answer was under way must not come back with it.
        if drops == self._drops:
            self._remember(digest, now, principal)
        return principal

    def drop(self, secret: str) -> None:
        self._drops += 1
        self._known.pop(self._digest(secret), None)

    def drop_where(self, chosen: Chosen) -> None:
        self._drops += 1
        for digest in [digest for digest, (_, known) in self._known.items() if chosen(known)]:
            del self._known[digest]

    def _remember(self, digest: bytes, now: float, principal: a.Principal) -> None:
        self._known[digest] = (now, principal)
        self._known.move_to_end(digest)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)

    def _digest(self, secret: str) -> bytes:
        return hashlib.blake2b(secret.encode("utf-8", "replace"), key=self._key, digest_size=32).digest()


class CachedKeys:
    """A revoked key is refused at once in this process, and within FRESH_S and an answer's time in the others."""

    def __init__(self, keys: Keys, clock: Clock = time.monotonic, capacity: int = CAPACITY):
        self._keys = keys
        self._recognised = Recognised(clock, capacity, bad_key)

    async def authenticate(self, secret: str) -> a.Principal:
        return await self._recognised.lookup(secret, self._keys.authenticate)

    async def create_key(self, request: a.NewKey) -> a.ApiKey:
        return await self._keys.create_key(request)

    async def keys(self, query: a.KeyQuery) -> Sequence[a.ApiKey]:
        return await self._keys.keys(query)

    async def revoke_key(self, ref: a.Ref) -> None:
        await self._keys.revoke_key(ref)
        self._recognised.drop_where(lambda known: known.key_id == ref.id)


class CachedSessions:
    """A closed session is refused at once in this process, and within FRESH_S and an answer's time in the others."""

    def __init__(self, sessions: Sessions, clock: Clock = time.monotonic, capacity: int = CAPACITY):
        self._sessions = sessions
        self._recognised = Recognised(clock, capacity, bad_session)

    async def open(self, session: a.NewSession) -> str:
        return await self._sessions.open(session)

    async def resolve(self, token: str) -> a.Principal:
        return await self._recognised.lookup(token, self._sessions.resolve)

    async def close(self, token: str) -> None:
        await self._sessions.close(token)
        self._recognised.drop(token)

    async def close_all(self, user: a.Ref) -> None:
        await self._sessions.close_all(user)
        self._recognised.drop_where(lambda known: (known.tenant, known.user_id) == (user.tenant, user.id))
