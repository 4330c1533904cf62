"""The people of an organisation. They come by registering or signing in: see sign_in.py."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from services.accounts import text
from services.accounts.deeds import changed, deed
from services.accounts.member_store import MemberQueries
from services.accounts.roles import MACHINE, may_manage
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import Conflict, Forbidden, InvalidRequest, NotFound

Clock = Callable[[], float]


class MemberService:
    def __init__(self, store: AccountStore, clock: Clock = time.time):
        self._store = store
        self._clock = clock

    async def members(self, tenant: str) -> Sequence[a.Member]:
        async with self._store.reading(MemberQueries) as db:
            return await db.of(tenant)

    async def member(self, ref: a.Ref) -> a.Member:
        async with self._store.reading(MemberQueries) as db:
            return await _member(db, ref)

    async def update_member(self, patch: a.MemberPatch) -> a.Member:
        wanted = _wanted(patch)
        ref = a.Ref(patch.tenant, patch.id, patch.actor)
        async with self._store.writing(MemberQueries) as db:
            owners = await db.lock_owners(ref.tenant) if patch.role else ()
            member = await _member(db, ref, lock=True)
            await self._check_rights(db, ref, member, patch.role)
            changes, told = changed(member, wanted)
            if "role" in changes and list(owners) == [member.id]:
                raise Conflict("An organisation keeps at least one owner.", param="role")
            if changes:
                await db.change(member.id, changes)
                action = "member.role" if "role" in changes else "member.update"
                await db.note(deed(ref, action, self._clock(), told.get("role", {})))
        return msgspec.structs.replace(member, **changes)

    async def remove_member(self, ref: a.Ref) -> None:
        async with self._store.writing(MemberQueries) as db:
            owners = await db.lock_owners(ref.tenant)
            member = await _member(db, ref, lock=True)
            await self._check_rights(db, ref, member, member.role)
            if list(owners) == [member.id]:
                raise Conflict("An organisation keeps at least one owner.")
            await db.remove(member)
            await db.note(deed(ref, "member.remove", self._clock(), {"role": member.role}))

    async def _check_rights(self, db: MemberQueries, ref: a.Ref, member: a.Member, role: a.Role | None) -> None:
        """As they are now. role: the one that is given or taken; None: neither, and that is one's own to do."""
        if ref.actor in MACHINE:
            return
        actor = await db.actor(ref.actor, self._clock())
        own = actor is not None and role is None and actor.user_id == member.id
        above = actor is not None and all(
            may_manage(actor, ref.tenant, each) for each in (member.role, role or "member")
        )
        if not (own or above):
            raise Forbidden(f"This needs the rights to manage a user who is {member.role}.")


def _wanted(patch: a.MemberPatch) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if patch.name is not None:
        wanted["name"] = text.name(patch.name, optional=True)
    if patch.role is not None:
        if patch.role not in a.ROLES:
            raise InvalidRequest(f"A role is one of {', '.join(a.ROLES)}.", param="role")
        wanted["role"] = patch.role
    return wanted


async def _member(db: MemberQueries, ref: a.Ref, *, lock: bool = False) -> a.Member:
    found = await db.get(ref.tenant, ref.id, lock=lock)
    if found is None:
        raise NotFound("There is no such user.")
    return found
