"""Signing in with the word of an identity provider (OIDC)."""

from collections.abc import Callable

from services.accounts import text
from services.accounts.deeds import deed
from services.accounts.roles import OidcMapping, mapped_role
from services.accounts.sign_in_store import Person, SignInQueries
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import Conflict, Forbidden, InvalidRequest
from services.common.texts import new_id, storable

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
            person, entries = await self._found(db, identity, Person("", mapping.tenant, "", role), now)
            if mapping.groups and person.role != role and await db.set_role(person, role):
                entries.append(deed(a.Ref(person.tenant, person.id), "member.role", now, _changed(person.role, role)))
            await db.seen(person, now)
            for entry in [*entries, deed(person.own, "signin.oidc", now, {"issuer": identity.issuer})]:
                await db.note(entry)
        return a.NewSession(tenant=person.tenant, user_id=person.id)

    async def _found(
        self, db: SignInQueries, identity: a.ExternalIdentity, newcomer: Person, now: float
    ) -> tuple[Person, list[a.AuditEntry]]:  # fmt: skip
        """Whom the identity names, whose e-mail it has, or somebody new; with what was done to find them."""
        if known := await db.person_vouched_for(identity):
            return _at_home(known, newcomer.tenant), []
        newcomer = newcomer._replace(id=new_id("user"), email=_verified(identity), verified=True)
        entries: list[a.AuditEntry] = []
        person = await db.person_called(newcomer.email)
        if person is None:
            person, entries = await self._made(db, identity, newcomer, now)
        elif await db.is_linked(_at_home(person, newcomer.tenant), identity.issuer):
            # Providers give a leaver's address to somebody new, who must not get the leaver's account with it.
            raise Forbidden("The account with your e-mail address belongs to another identity.")
        elif not person.verified:
            person, entries = await self._taken_over(db, identity, person, newcomer, now)
        if not await db.link(identity, person.id):
            raise Conflict("The identity was linked meanwhile.")
        return person, entries

    async def _made(
        self, db: SignInQueries, identity: a.ExternalIdentity, newcomer: Person, now: float
    ) -> tuple[Person, list[a.AuditEntry]]:  # fmt: skip
        if not await db.add_user(newcomer, _name(identity), now):
            raise Conflict("The account was made meanwhile.")
        return newcomer, [deed(newcomer.own, "user.create", now, {"role": newcomer.role})]

    async def _taken_over(
        self, db: SignInQueries, identity: a.ExternalIdentity, person: Person, newcomer: Person, now: float
    ) -> tuple[Person, list[a.AuditEntry]]:  # fmt: skip
        """Whoever made the account never showed that the e-mail is theirs. It ends, and its role goes to whose it is.

        Under a new id, and so with a new space: what is still under way for the old one, or remembered of it, comes to
        nothing.
        """
        ended = await db.remove(person)
        if ended is None:
            raise Conflict("The account was removed meanwhile.")
        role, what = ended
        made, entries = await self._made(db, identity, newcomer._replace(role=role), now)
        return made, [deed(a.Ref(person.tenant, person.id, made.id), "user.take_over", now, what), *entries]

    async def _note_failure(self, identity: a.ExternalIdentity, tenant: str, reason: Forbidden) -> None:
        details = {"issuer": storable(identity.issuer), "reason": reason.message}
        async with self._store.writing(SignInQueries) as db:
            await db.note(deed(a.Ref(tenant, ""), "signin.failed", self._clock(), details))


def _at_home(person: Person, tenant: str) -> Person:
    if person.tenant != tenant:
        raise Forbidden("Your account belongs to another organisation.")
    return person


def _changed(old: a.Role, new: a.Role) -> dict[str, str]:
    return {"old": old, "new": new}


def _check_named(identity: a.ExternalIdentity) -> None:
    # Letters that cannot be stored are not replaced: two identities must not become one.
    named = (identity.issuer, identity.subject)
    if not all(part and storable(part) == part for part in named):
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
