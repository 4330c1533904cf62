"""The arithmetic of throttled guessing. Times are seconds since the epoch.

An attempt counts as a failure from the moment it is admitted until it turns out to be right, so that many at once are
no way around. After FREE failures in a row each further attempt waits, twice as long each time. A row of failures ends
with a success, or after FORGET_S without one. What is refused counts for nothing: waiting as long as told suffices.

Who may be held up, and by whom:
- every attempt counts against the address it came from, for up to ADDRESS_MOST_S;
- and against its account, for up to ACCOUNT_MOST_S only, because strangers can cause that;
- except from an address where the account has signed in within KNOWN_S: there it counts against that pair alone, so
  that guesses from elsewhere never hold its owner up.
"""

import hashlib
import hmac
from ipaddress import IPv6Address, ip_address
from typing import NamedTuple

FREE = 5
ACCOUNT_MOST_S = 60.0
ADDRESS_MOST_S = 15 * 60.0
FORGET_S = 15 * 60.0
KNOWN_S = 30 * 24 * 3600.0
KNOWN = "known:"
"""Begins the key of an account at an address."""
_TINY = 1e-3
"""More than adding a wait to a time can lose."""
_SET_BACK_S = 3600.0
"""The clocks of two replicas differ by less; a clock that was set back, by more."""


class Row(NamedTuple):
    """The failures in a row of one subject, and when its next attempt may be made."""

    failures: int = 0
    until: float = 0.0


def wait_s(row: Row, now: float, most: float) -> float:
    """How long the next attempt must wait: 0 where the clock was set back since."""
    wait = row.until - now
    return wait if _TINY < wait <= most + _SET_BACK_S else 0.0


def charged(row: Row, now: float, most: float) -> Row:
    """With one more attempt, which is a failure for now."""
    failures = (0 if now - row.until > FORGET_S else row.failures) + 1
    return Row(failures, now + delay_s(failures, most))


def refunded(row: Row, now: float) -> Row:
    """Without an attempt that turned out to be right: as if it had not been made."""
    return Row(max(0, row.failures - 1), now)


def delay_s(failures: int, most: float) -> float:
    """1 s after FREE failures in a row, then doubling."""
    if failures < FREE:
        return 0.0
    return most if failures - FREE > 20 else min(2.0 ** (failures - FREE), most)


class Subject(NamedTuple):
    """Whom attempts count against, and for how long they can hold it up."""

    key: str
    most_s: float


class Guess(NamedTuple):
    """The subjects of one guess at an account's password. No address: it is not known where the guess came from."""

    account: Subject
    address: Subject | None = None
    pair: Subject | None = None
    """The account at the address."""


class Subjects:
    """Names them by keyed digests: a copy of the table tells nobody's address or e-mail."""

    def __init__(self, pepper: bytes):
        self._key = hmac.new(pepper, b"antiphon sign-in attempts", hashlib.sha256).digest()

    def guess(self, email: str, address: str) -> Guess:
        account = Subject("account:" + self._digest(email), ACCOUNT_MOST_S)
        if not address:
            return Guess(account)
        source = network(address)
        return Guess(
            account,
            Subject("address:" + self._digest(source), ADDRESS_MOST_S),
            Subject(KNOWN + self._digest(f"{source} {email}"), ACCOUNT_MOST_S),
        )

    def change(self, user_id: str) -> Subject:
        """Of a password, by somebody who is signed in: guesses from outside do not count."""
        return Subject("change:" + self._digest(user_id), ACCOUNT_MOST_S)

    def hint(self, email: str) -> str:
        """For the audit log: tells attempts on one account from those on another, and no more."""
        return self._digest(email)[:12]

    def _digest(self, text: str) -> str:
        return hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def network(address: str) -> str:
    """What one subscriber has: an IPv4 address, or the 64 leading bits of an IPv6 address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
