"""The arithmetic of the audit log: each entry's hash covers the entry and the hash before it."""

import hashlib
import hmac

import msgspec

from services.common.account_messages import AuditEntry

GENESIS = ""
"""What stands for a hash before the first entry."""
_canonical = msgspec.json.Encoder(order="sorted").encode


class Chain:
    """Keyed: who can write to the database, but does not have the pepper, cannot make a log that looks whole."""

    def __init__(self, pepper: bytes):
        self._key = hmac.new(pepper, b"antiphon audit log", hashlib.sha256).digest()

    def hash(self, previous: str, entry: AuditEntry, details: str) -> str:
        """HMAC-SHA256 in hex over the previous hash and the entry. `details` is its JSON, to the letter as it is kept."""
        e = entry
        covered = [previous, e.seq, e.at, e.tenant, e.actor, e.action, e.target, msgspec.Raw(details.encode())]
        return hmac.new(self._key, _canonical(covered), hashlib.sha256).hexdigest()
