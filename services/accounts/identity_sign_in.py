"""Signing in with the word of an identity provider (OIDC)."""

from collections.abc import Callable

from services.accounts import text
from services.accounts.deeds import deed
from services.accounts.roles import OidcMapping, mapped_role
from services.accounts.sign_in_store import Person, SignInQueries
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import Conflict, Forbidden, InvalidRequest

Clock = Callable[[], float]
UNVERIFIED = "The identity provider has not verified your e-mail address. Verify it there, then sign in again."


class IdentitySignIn:
    """mapping None: nobody may."""

    def __init__(self, store: AccountStore, mapping: OidcMapping | None, clock: Clock):
        self._store = store
        self._mapping = mapping
        self._clock = clock

    async def sign_in(self, identity: a.ExternalIdentity) -> a.NewSession:
        if self._mapping is None:
            raise Forbidden("Signing in through an identity provider is not set up.")
        try:
            _check_named(identity)
            role = mapped_role(self._mapping, identity)
            try:
                return await self._admitted(identity, self._mapping, role)
            except Conflict:  # the same person, twice at once: whom the other made is there now
                return await self._admitted(identity, self._mapping, role)
        except Forbidden as e:
            await self._note_failure(identity, self._mapping.tenant, e)
            raise

    async def _admitted(self, identity: a.ExternalIdentity, mapping: OidcMapping, role: a.Role) -> a.NewSession:
        now = self._clock()
        async with self._store.writing(SignInQueries) as db:
            if not await db.is_active(mapping.tenant):
                raise Forbidden("Your organisation is suspended.")
            entries = []
            person = await db.person_vouched_for(identity) or await self._linked(db, identity)
            if person is None:
                person = await self._made(db, identity, mapping.tenant, role, now)
                entries.append(deed(_own(person), "user.create", now, {"role": role}))
            if person.tenant != mapping.tenant:
                raise Forbidden("Your account belongs to another organisation.")
            if mapping.groups and person.role != role and await db.set_role(person, role):
                entries.append(deed(a.Ref(person.tenant, person.id), "member.role", now, _changed(person.role, role)))
            await db.seen(person, now)
            for entry in [*entries, deed(_own(person), "signin.oidc", now, {"issuer": identity.issuer})]:
                await db.note(entry)
        return a.NewSession(tenant=person.tenant, user_id=person.id)

    async def _linked(self, db: SignInQueries, identity: a.ExternalIdentity) -> Person | None:
        """Somebody who has an account with the same e-mail, to whom the identity now belongs."""
        email = _verified(identity)
        person = await db.person_called(email)
        if person is None:
            return None
        if await db.is_linked(person, identity.issuer):
            # Providers give a leaver's address to somebody new, who must not get the leaver's account with it.
            raise Forbidden("The account with your e-mail address belongs to another identity.")
        if not await db.link(identity, person.id):
            raise Conflict("The identity was linked meanwhile.")
        return person

    async def _made(
        self, db: SignInQueries, identity: a.ExternalIdentity, tenant: str, role: a.Role, now: float
    ) -> Person:  # fmt: skip
        person = Person(text.new_id("user"), tenant, _verified(identity), role)
        if not (await db.add_user(person, _name(identity), now) and await db.link(identity, person.id)):
            raise Conflict("The account was made meanwhile.")
        return person

    async def _note_failure(self, identity: a.ExternalIdentity, tenant: str, reason: Forbidden) -> None:
        details = {"issuer": text.storable(identity.issuer), "reason": reason.message}
        async with self._store.writing(SignInQueries) as db:
            await db.note(deed(a.Ref(tenant, ""), "signin.failed", self._clock(), details))


def _own(person: Person) -> a.Ref:
    return a.Ref(person.tenant, person.id, person.id)


def _changed(old: a.Role, new: a.Role) -> dict[str, str]:
    return {"old": old, "new": new}


def _check_named(identity: a.ExternalIdentity) -> None:
    # Letters that cannot be stored are not replaced: two identities must not become one.
    named = (identity.issuer, identity.subject)
    if not all(part and text.storable(part) == part for part in named):
        raise Forbidden("The identity provider gave no usable name for you.")


def _verified(identity: a.ExternalIdentity) -> str:
    if not identity.email_verified:
        raise Forbidden(UNVERIFIED)
    try:
        return text.email(identity.email)
    except InvalidRequest:
        raise Forbidden("The identity provider gave no usable e-mail address for you.") from None


def _name(identity: a.ExternalIdentity) -> str:
    return "".join(letter for letter in identity.name if letter.isprintable()).strip()[: text.MAX_NAME]
