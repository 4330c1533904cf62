"""Every query on failed attempts to sign in; the arithmetic is in throttle.py. SQLite and PostgreSQL."""

from collections.abc import Sequence

from sqlalchemy import and_, delete, not_, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from services.accounts.store import Queries
from services.accounts.tables import attempts
from services.accounts.throttle import FORGET_S, KNOWN, KNOWN_S, Guess, Row, Subject, charged, refunded, wait_s

SWEEP = 1000


class AttemptQueries(Queries):
    """Rows are locked in one order everywhere: of an address, then of an account, then of the pair of them."""

    async def charge_guess(self, guess: Guess, now: float) -> float:
        """Counts it as a failure until it turns out to be right; or tells the seconds to wait, and counts nothing."""
        if guess.address is None or guess.pair is None:
            return await self.charge((guess.account,), now)
        return await self.charge(
            (guess.address, guess.pair if await self._known(guess.pair, now) else guess.account), now
        )

    async def right_guess(self, guess: Guess, now: float) -> None:
        """The address gets back what this guess was charged, and no more: else whoever has an account could clear the
        way to guess at others'. Where the pair was charged, the account's row tells of guesses from elsewhere, and stays.
        """
        if guess.address is None or guess.pair is None:
            return await self.clear(guess.account)
        await self._put(guess.address, refunded(await self._locked(guess.address), now))
        if not await self._known(guess.pair, now):
            await self.clear(guess.account)
        await self._locked(guess.pair)
        return await self._put(guess.pair, Row(0, now))

    async def _known(self, pair: Subject, now: float) -> bool:
        chosen = select(attempts.c.subject).where(attempts.c.subject == pair.key, attempts.c.until >= now - KNOWN_S)
        return (await self.connection.execute(chosen)).first() is not None

    async def charge(self, subjects: Sequence[Subject], now: float) -> float:
        """As `charge_guess`: of each subject, or of none."""
        held = [(subject, await self._locked(subject)) for subject in subjects]
        wait = max(wait_s(row, now, subject.most_s) for subject, row in held)
        if not wait:
            for subject, row in held:
                await self._put(subject, charged(row, now, subject.most_s))
        return wait

    async def clear(self, subject: Subject) -> None:
        await self.connection.execute(delete(attempts).where(attempts.c.subject == subject.key))

    async def _locked(self, subject: Subject) -> Row:
        upsert = sqlite.insert if self.connection.dialect.name == "sqlite" else postgresql.insert
        added = upsert(attempts).values(subject=subject.key, failures=0, until=0.0)
        # An update that changes nothing locks the row, also one that another transaction is just adding.
        unchanged = added.on_conflict_do_update(
            index_elements=[attempts.c.subject], set_={"failures": attempts.c.failures}
        )
        row = (await self.connection.execute(unchanged.returning(attempts.c.failures, attempts.c.until))).one()
        return Row(row.failures, row.until)

    async def _put(self, subject: Subject, row: Row) -> None:
        changed = update(attempts).where(attempts.c.subject == subject.key).values(row._asdict())
        await self.connection.execute(changed)

    async def sweep(self, now: float) -> None:
        """Forget what no longer counts. In a transaction of its own, that holds nothing which others may wait for."""
        known = attempts.c.subject.startswith(KNOWN)
        old = or_(
            and_(not_(known), attempts.c.until < now - FORGET_S),
            attempts.c.until < now - KNOWN_S,
        )
        chosen = select(attempts.c.subject).where(old).limit(SWEEP).with_for_update(skip_locked=True)
        await self.connection.execute(delete(attempts).where(attempts.c.subject.in_(chosen)))
