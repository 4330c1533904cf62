"""Every query on people who sign in, and on their identities. SQLite and PostgreSQL."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Table, and_, delete, insert, select, text, update
from sqlalchemy.exc import IntegrityError

from services.accounts import invite_store
from services.accounts.attempt_store import AttemptQueries
from services.accounts.member_store import MemberQueries
from services.accounts.session_store import remove_sessions_of
from services.accounts.store import owned
from services.accounts.tables import identities, organisations, users
from services.common.account_messages import ExternalIdentity, Invite, Ref, Role
from services.common.messages import Json


class Person(NamedTuple):
    id: str
    tenant: str
    email: str
    role: Role
    password: str | None = None
    verified: bool = False
    """Somebody who is believed has said that the e-mail is this person's."""
    suspended: bool = False
    """The organisation is, or is gone."""

    @property
    def own(self) -> Ref:
        """Of a deed that the person did, on their own account."""
        return Ref(self.tenant, self.id, self.id)

    def __repr__(self) -> str:
        return f"Person(id={self.id!r}, tenant={self.tenant!r})"


_PERSON = select(
    *(users.c[name] for name in ("id", "tenant", "email", "role", "password", "verified")), organisations.c.suspended
).outerjoin_from(users, organisations, organisations.c.id == users.c.tenant)


class SignInQueries(AttemptQueries):
    async def any_user(self, *, lock: bool = False) -> bool:
        """With `lock`, nobody else finds the installation empty until this transaction ends."""
        if lock and self.connection.dialect.name == "postgresql":
            await self.connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('antiphon first user'))"))
        return (await self.connection.execute(select(users.c.id).limit(1))).first() is not None

    async def is_active(self, tenant: str) -> bool:
        """The organisation is there, and not suspended."""
        chosen = select(organisations.c.id).where(organisations.c.id == tenant, organisations.c.suspended.is_(False))
        return (await self.connection.execute(chosen)).first() is not None

    async def person(self, tenant: str, id: str) -> Person | None:
        return await self._person(owned(users, tenant, id))

    async def person_called(self, email: str) -> Person | None:
        return await self._person(users.c.email == email)

    async def person_vouched_for(self, identity: ExternalIdentity) -> Person | None:
        return await self._person(users.c.id.in_(select(identities.c.user_id).where(_named(identity))))

    async def _person(self, chosen: ColumnElement[bool]) -> Person | None:
        row = (await self.connection.execute(_PERSON.where(chosen))).one_or_none()
        return Person(*row[:6], suspended=row.suspended is not False) if row else None

    async def add_user(self, person: Person, name: str, now: float, space: str = "") -> bool:
        """space "": one of the person's own. False if the e-mail is taken; the transaction is then lost."""
        row = {column: getattr(person, column) for column in ("id", "tenant", "email", "role", "password", "verified")}
        row |= {"name": name, "space": space or f"{person.tenant}/{person.id}", "created": now, "last_seen": now}
        return await self._added(users, row)

    async def link(self, identity: ExternalIdentity, user_id: str) -> bool:
        """In place of a link to somebody who is gone. False if somebody else was faster; the transaction is then lost."""
        gone = identities.c.user_id.not_in(select(users.c.id))
        await self.connection.execute(delete(identities).where(_named(identity), gone))
        return await self._added(
            identities, {"issuer": identity.issuer, "subject": identity.subject, "user_id": user_id}
        )

    async def _added(self, table: Table, row: Mapping[str, Any]) -> bool:
        try:
            await self.connection.execute(insert(table).values(dict(row)))
        except IntegrityError:
            return False
        return True

    async def is_linked(self, person: Person, issuer: str) -> bool:
        """The issuer has vouched for the person before."""
        chosen = select(identities.c.subject).where(identities.c.user_id == person.id, identities.c.issuer == issuer)
        return (await self.connection.execute(chosen)).first() is not None

    async def open_invite(self, digest: str, now: float) -> Invite | None:
        return await invite_store.InviteQueries(self.connection, self._chain).open(digest, now)

    async def consume_invite(self, digest: str, user_id: str, email: str, now: float) -> invite_store.Accepted | None:
        return await invite_store.consume(self.connection, digest, user_id, email, now)

    async def remove(self, person: Person) -> tuple[Role, Json] | None:
        """The role that ends with the account, and how much else. None if the person is gone."""
        members = MemberQueries(self.connection, self._chain)
        await members.lock_owners(person.tenant)  # in the order in which members.py locks
        member = await members.get(person.tenant, person.id, lock=True)
        return (member.role, await members.remove(member)) if member else None

    async def seen(self, person: Person, now: float, password: str | None = None) -> bool:
        """password: the same in a new form. False if the person is gone, or has another password by now."""
        return await self._change(person, {"last_seen": now} | ({"password": password} if password else {}))

    async def set_password(self, person: Person, password: str) -> bool:
        """Signs out everywhere. False as for `seen`."""
        await remove_sessions_of(self.connection, person.tenant, person.id)
        return await self._change(person, {"password": password})

    async def _change(self, person: Person, values: Mapping[str, Any]) -> bool:
        same = users.c.password.is_(None) if person.password is None else users.c.password == person.password
        chosen = update(users).where(users.c.id == person.id, same).values(dict(values))
        return (await self.connection.execute(chosen)).rowcount > 0

    async def set_role(self, person: Person, role: Role) -> bool:
        """False, and nothing done, where the organisation would lose its last owner."""
        members = MemberQueries(self.connection, self._chain)
        if list(await members.lock_owners(person.tenant)) == [person.id]:
            return False
        await members.change(person.id, {"role": role})
        return True


def _named(identity: ExternalIdentity) -> ColumnElement[bool]:
    return and_(identities.c.issuer == identity.issuer, identities.c.subject == identity.subject)
