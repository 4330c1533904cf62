"""How people get in: by password, through an identity provider, and by making an account."""

import math
import time
from collections.abc import Callable

from services.accounts import text
from services.accounts.deeds import deed
from services.accounts.identity_sign_in import IdentitySignIn
from services.accounts.invites import invite_secrets
from services.accounts.passwords import Passwords, accepted
from services.accounts.roles import OidcMapping
from services.accounts.sign_in_store import Person, SignInQueries
from services.accounts.store import AccountStore
from services.accounts.throttle import Guess, Subjects
from services.common import account_messages as a
from services.common.errors import Conflict, Forbidden, InvalidRequest, NotFound, NotSignedIn, TooManyAttempts
from services.common.messages import Json
from services.common.texts import new_id, storable

SWEEP_S = 60.0
Clock = Callable[[], float]


class SignInService:
    """mapping None: nobody signs in through an identity provider. The pepper is the same in every replica, for ever."""

    def __init__(
        self,
        store: AccountStore,
        pepper: bytes,
        mapping: OidcMapping | None = None,
        passwords: Passwords | None = None,
        clock: Clock = time.time,
    ):
        self._store = store
        self._subjects = Subjects(pepper)
        self._invites = invite_secrets(pepper)
        self._identities = IdentitySignIn(store, mapping, clock)
        self._passwords = passwords or Passwords()
        self._clock = clock
        self._swept = 0.0

    async def empty(self) -> bool:
        async with self._store.reading(SignInQueries) as db:
            return not await db.any_user()

    async def with_identity(self, identity: a.ExternalIdentity) -> a.NewSession:
        return await self._identities.sign_in(identity)

    async def with_password(self, attempt: a.PasswordSignIn) -> a.NewSession:
        await self._sweep()
        email = storable(attempt.email.strip().lower())
        guess = self._subjects.guess(email, attempt.address)
        async with self._store.writing(SignInQueries) as db:
            _check(await db.charge_guess(guess, self._clock()))
            person = await db.person_called(email)
        details = {"address": storable(attempt.address[:64])}
        right = await self._passwords.matches(person.password if person else None, attempt.password)
        if person is None or not right:
            await self._note_failure(person, details if person else details | {"account": self._subjects.hint(email)})
            raise NotSignedIn("The e-mail address or the password is wrong.")
        if person.suspended:
            await self._note_failure(person, details | {"reason": "suspended"})
            raise Forbidden("Your organisation is suspended.")
        await self._let_in(person, guess, attempt.password, details)
        return a.NewSession(tenant=person.tenant, user_id=person.id)

    async def _let_in(self, person: Person, guess: Guess, password: str, details: Json) -> None:
        rehashed = await self._passwords.rehashed(str(person.password), password)
        now = self._clock()
        async with self._store.writing(SignInQueries) as db:
            await db.right_guess(guess, now)
            if not await db.seen(person, now, rehashed):
                raise NotSignedIn("The account was changed meanwhile. Sign in again.")
            await db.note(deed(person.own, "signin.password", now, details))

    async def _note_failure(self, person: Person | None, details: Json) -> None:
        tried = a.Ref(person.tenant, person.id) if person else a.Ref("", "")
        async with self._store.writing(SignInQueries) as db:
            await db.note(deed(tried, "signin.failed", self._clock(), details))

    async def _sweep(self) -> None:
        now = self._clock()
        if abs(now - self._swept) >= SWEEP_S:
            self._swept = now
            async with self._store.writing(SignInQueries) as db:
                await db.sweep(now)

    async def register(self, request: a.Registration) -> a.NewSession:
        email, name = text.email(request.email), text.name(request.name, optional=True)
        password = accepted(request.password, email)
        await self._check_welcome(request)  # before the work of hashing
        hashed = await self._passwords.hashed(password)
        id, now = new_id("user"), self._clock()
        async with self._store.writing(SignInQueries) as db:
            if request.invite:
                return await self._invited(db, request.invite, Person(id, "", email, "member", hashed), name, now)
            if await db.any_user(lock=True):
                raise _uninvited()
            person = Person(id, request.tenant, email, "owner", hashed, verified=True)
            await self._add(db, person, name, now, request.space)
            await db.note(deed(person.own, "user.create", now, {"role": person.role}))
        return a.NewSession(tenant=person.tenant, user_id=person.id)

    async def _check_welcome(self, request: a.Registration) -> None:
        async with self._store.reading(SignInQueries) as db:
            if request.invite:
                if await db.open_invite(self._invites.digest_of_any(request.invite), self._clock()) is None:
                    raise _no_invite()
            elif await db.any_user():
                raise _uninvited()
            elif not await db.is_active(storable(request.tenant)):
                raise NotFound("There is no such organisation.", param="tenant")

    async def _invited(self, db: SignInQueries, token: str, newcomer: Person, name: str, now: float) -> a.NewSession:
        accepted = await db.consume_invite(self._invites.digest_of_any(token), newcomer.id, newcomer.email, now)
        if accepted is None:
            raise _no_invite()
        invite = accepted.invite
        person = newcomer._replace(tenant=invite.tenant, role=invite.role, verified=accepted.vouched_for)
        await self._add(db, person, name, now)
        await db.note(deed(a.Ref(person.tenant, invite.id, person.id), "invite.accept", now))
        await db.note(deed(person.own, "user.create", now, {"role": person.role}))
        return a.NewSession(tenant=person.tenant, user_id=person.id)

    async def _add(self, db: SignInQueries, person: Person, name: str, now: float, space: str = "") -> None:
        if not await db.add_user(person, name, now, storable(space)):
            raise Conflict("There is already an account with this e-mail address.", param="email")

    async def set_password(self, request: a.NewPassword) -> None:
        async with self._store.reading(SignInQueries) as db:
            person = await db.person(request.tenant, request.user_id)
        if person is None:
            raise NotFound("There is no such user.")
        new = accepted(request.new, person.email, param="new")
        if person.password and not (request.current is None and request.actor == "cli"):
            await self._check_current(person, request.current)
        hashed = await self._passwords.hashed(new)
        async with self._store.writing(SignInQueries) as db:
            await db.clear(self._subjects.change(person.id))
            if not await db.set_password(person, hashed):
                raise Conflict("The password was changed meanwhile.")
            await db.note(deed(a.Ref(person.tenant, person.id, request.actor), "user.password", self._clock()))

    async def _check_current(self, person: Person, current: str | None) -> None:
        if current is None:
            raise InvalidRequest("The current password is needed to set a new one.", param="current")
        async with self._store.writing(SignInQueries) as db:
            _check(await db.charge((self._subjects.change(person.id),), self._clock()))
        if not await self._passwords.matches(person.password, current):
            await self._note_failure(person, {"reason": "current password"})
            raise NotSignedIn("The current password is wrong.", param="current")


def _check(wait: float) -> None:
    if wait:
        raise TooManyAttempts(f"Too many attempts. Try again in {math.ceil(wait)} s.", retry_after=wait)


def _no_invite() -> NotFound:
    return NotFound("There is no such invitation for this address, or it was used or has expired.", param="invite")


def _uninvited() -> Forbidden:
    return Forbidden("An account is made by invitation.")
