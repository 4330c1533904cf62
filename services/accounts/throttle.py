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

from typing import NamedTuple

FREE = 5
ACCOUNT_MOST_S = 60.0
ADDRESS_MOST_S = 15 * 60.0
FORGET_S = 15 * 60.0
KNOWN_S = 30 * 24 * 3600.0
_TINY = 1e-3
"""More than adding a wait to a time can lose."""


class Row(NamedTuple):
    """The failures in a row of one subject, and when its next attempt may be made."""

    failures: int = 0
    until: float = 0.0


def wait_s(row: Row, now: float, most: float) -> float:
    """How long the next attempt must wait. Longer than `most` means that the clock was set back: 0."""
    wait = row.until - now
    return wait if _TINY < wait <= most else 0.0


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
