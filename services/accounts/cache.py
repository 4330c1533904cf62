"""Policy around the ports: who was recognised a moment ago is recognised without asking again."""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

from services.common import messages as m
from services.common.errors import InvalidApiKey, Overloaded
from services.common.ports import Accounts, Sessions

FRESH_S = 5.0
STALE_S = 60.0
CAPACITY = 10_000
MAX_SECRET = 200
Clock = Callable[[], float]


class Recognised:
    """The principals of secrets that were good at most FRESH_S ago, or STALE_S while nobody can be asked.

    Only good secrets are remembered, the least recently checked is dropped first, and each only as a digest whose key
    dies with the process.
    """

    def __init__(self, clock: Clock, capacity: int):
        self._clock = clock
        self._capacity = capacity
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, tuple[float, m.Principal]] = OrderedDict()
        self._drops = 0

    async def lookup(self, secret: str, ask: Callable[[str], Awaitable[m.Principal]]) -> m.Principal:
        if len(secret) > MAX_SECRET or not secret.isascii():
            raise InvalidApiKey("The key or token is malformed.")
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

    def drop_key(self, key: m.MessageRef) -> None:
        self._drops += 1
        principal = m.Principal(tenant=key.tenant, key_id=key.id)
        for digest in [digest for digest, (_, known) in self._known.items() if known == principal]:
            del self._known[digest]

    def _remember(self, digest: bytes, now: float, principal: m.Principal) -> None:
        self._known[digest] = (now, principal)
        self._known.move_to_end(digest)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)

    def _digest(self, secret: str) -> bytes:
        return hashlib.blake2b(secret.encode("utf-8", "replace"), key=self._key, digest_size=32).digest()


class CachedAccounts:
    """A revoked key is refused at once in this process, and within FRESH_S in the others."""

    def __init__(self, accounts: Accounts, clock: Clock = time.monotonic, capacity: int = CAPACITY):
        self._accounts = accounts
        self._recognised = Recognised(clock, capacity)

    async def authenticate(self, secret: str) -> m.Principal:
        return await self._recognised.lookup(secret, self._accounts.authenticate)

    async def create_key(self, request: m.NewKey) -> m.ApiKey:
        return await self._accounts.create_key(request)

    async def keys(self, tenant: str) -> Sequence[m.ApiKey]:
        return await self._accounts.keys(tenant)

    async def revoke_key(self, key: m.MessageRef) -> None:
        await self._accounts.revoke_key(key)
        self._recognised.drop_key(key)


class CachedSessions:
    """A closed session is refused at once in this process, and within FRESH_S in the others."""

    def __init__(self, sessions: Sessions, clock: Clock = time.monotonic, capacity: int = CAPACITY):
        self._sessions = sessions
        self._recognised = Recognised(clock, capacity)

    async def open(self, tenant: str) -> str:
        return await self._sessions.open(tenant)

    async def resolve(self, token: str) -> m.Principal:
        return await self._recognised.lookup(token, self._sessions.resolve)

    async def close(self, token: str) -> None:
        await self._sessions.close(token)
        self._recognised.drop(token)
