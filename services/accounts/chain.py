"""The arithmetic of the audit log: each entry's hash covers the entry and the hash before it."""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from services.common.account_messages import AuditReport

GENESIS = ""
"""What stands for a hash before the first entry."""
_COVERED = ("seq", "at", "tenant", "actor", "action", "target")
_canonical = msgspec.json.Encoder(order="sorted").encode


class Chain:
    """Keyed: who can write to the database, but does not have the pepper, cannot make a log that looks whole."""

    def __init__(self, pepper: bytes):
        self._key = hmac.new(pepper, b"antiphon audit log", hashlib.sha256).digest()

    def hash(self, previous: str, row: Mapping[str, Any]) -> str:
        """HMAC-SHA256 in hex over the previous hash and the row; `details` is JSON, covered to the letter."""
        fields = [row[name] for name in _COVERED]
        covered = _canonical([previous, *fields, msgspec.Raw(row["details"].encode())])
        return hmac.new(self._key, covered, hashlib.sha256).hexdigest()


class Walk:
    """Follows the chain row by row, up to the first that is not what was written or not in its place.

    What it cannot see: that the newest entries are gone. Compare its head with one that was kept elsewhere.
    """

    def __init__(self, chain: Chain):
        self._chain = chain
        self._report = AuditReport(entries=0, head=GENESIS)

    @property
    def report(self) -> AuditReport:
        """entries and head are those of the part that is whole."""
        return self._report

    def step(self, row: Mapping[str, Any]) -> bool:
        """False: the log is broken here, and what follows proves nothing."""
        due = self._report.entries + 1
        if row["seq"] != due:
            return self._broken(due, "an entry is missing" if _int(row["seq"]) > due else "an entry was put in")
        if not isinstance(row["details"], str) or row["hash"] != self._chain.hash(self._report.head, row):
            return self._broken(due, "the entry is not what was written, or not in its place")
        self._report = AuditReport(entries=due, head=row["hash"])
        return True

    def _broken(self, at: int, reason: str) -> bool:
        self._report = msgspec.structs.replace(self._report, broken_at=at, reason=reason)
        return False


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
