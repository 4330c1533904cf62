"""The audit log as a port. What happens in accounts is noted by the transaction that does it, not through here."""

import re
import time
from collections.abc import Callable, Sequence

import msgspec

from services.accounts.store import AccountStore, AuditQueries
from services.common import account_messages as a
from services.common.errors import InvalidRequest

MAX_PAGE = 1000
MAX_TEXT = 300
MAX_DETAILS = 16 << 10
_ACTION = re.compile(r"[a-z_]{1,50}\.[a-z_]{1,50}")
Clock = Callable[[], float]


class AuditLog:
    def __init__(self, store: AccountStore, clock: Clock = time.time):
        self._store = store
        self._clock = clock

    async def append(self, entry: a.AuditEntry) -> a.AuditEntry:
        _check(entry)
        async with self._store.writing(AuditQueries) as db:
            return await db.note(msgspec.structs.replace(entry, at=self._clock()))

    async def entries(self, query: a.AuditQuery) -> Sequence[a.AuditEntry]:
        if not 1 <= query.limit <= MAX_PAGE:
            raise InvalidRequest(f"`limit` must be between 1 and {MAX_PAGE}.", param="limit")
        if query.before is not None and not 0 <= query.before < 1 << 63:
            raise InvalidRequest("`before` must be the seq of an entry.", param="before")
        async with self._store.reading(AuditQueries) as db:
            return await db.find(query)

    async def verify(self) -> a.AuditReport:
        async with self._store.reading(AuditQueries) as db:
            return await db.verify()


def _check(entry: a.AuditEntry) -> None:
    if not _ACTION.fullmatch(entry.action):
        raise InvalidRequest("An action is `noun.verb` in lower case.", param="action")
    for name in ("tenant", "actor", "target"):
        if len(getattr(entry, name)) > MAX_TEXT:
            raise InvalidRequest(f"`{name}` has at most {MAX_TEXT} characters.", param=name)
    try:
        size = len(msgspec.json.encode(entry.details))
    except (UnicodeEncodeError, TypeError, OverflowError) as e:
        raise InvalidRequest("`details` must be JSON.", param="details") from e
    if size > MAX_DETAILS:
        raise InvalidRequest(f"`details` has at most {MAX_DETAILS} bytes.", param="details")
