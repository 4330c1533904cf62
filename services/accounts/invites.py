"""Invite links: a secret that makes one account in an organisation, with a role."""

import time
from collections.abc import Callable, Sequence

import msgspec

from services.accounts import text
from services.accounts.deeds import deed
from services.accounts.invite_store import InviteQueries, consume
from services.accounts.secret import SecretKind
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import InvalidRequest, NotFound
from services.common.texts import new_id, storable

__all__ = ["InviteService", "consume", "invite_secrets"]

MAX_LIFETIME_S = 90 * 24 * 3600.0
Clock = Callable[[], float]


def invite_secrets(pepper: bytes) -> SecretKind:
    return SecretKind("inv-", pepper)


class InviteService:
    def __init__(self, store: AccountStore, pepper: bytes, clock: Clock = time.time):
        self._store = store
        self._secrets = invite_secrets(pepper)
        self._clock = clock

    async def create_invite(self, request: a.NewInvite) -> a.Invite:
        token, now = self._secrets.new(), self._clock()
        invite = _new(request, now)
        async with self._store.writing(InviteQueries) as db:
            if not await db.organisation_exists(invite.tenant):
                raise NotFound("There is no such organisation.")
            await db.add(invite, self._secrets.digest_of_any(token), storable(request.actor))
            ref = a.Ref(invite.tenant, invite.id, request.actor)
            await db.note(deed(ref, "invite.create", now, {"role": invite.role, "expires": invite.expires}))
        return msgspec.structs.replace(invite, token=token)

    async def invites(self, tenant: str) -> Sequence[a.Invite]:
        async with self._store.reading(InviteQueries) as db:
            return await db.of(tenant)

    async def invite(self, token: str) -> a.Invite:
        async with self._store.reading(InviteQueries) as db:
            found = await db.open(self._secrets.digest_of_any(token), self._clock())
        if found is None:
            raise NotFound("There is no such invitation, or it was used or has expired.")
        return found

    async def remove_invite(self, ref: a.Ref) -> None:
        async with self._store.writing(InviteQueries) as db:
            if not await db.remove(ref.tenant, ref.id):
                raise NotFound("There is no such invitation.")
            await db.note(deed(ref, "invite.remove", self._clock()))


def _new(request: a.NewInvite, now: float) -> a.Invite:
    if request.role not in a.ROLES:
        raise InvalidRequest(f"A role is one of {', '.join(a.ROLES)}.", param="role")
    if not 0 < request.lifetime_s <= MAX_LIFETIME_S:
        raise InvalidRequest("An invitation is good for at most 90 days.", param="lifetime_s")
    return a.Invite(
        id=new_id("invite"),
        tenant=storable(request.tenant),
        email=text.email(request.email) if request.email else "",
        role=request.role,
        created=now,
        expires=now + request.lifetime_s,
    )
