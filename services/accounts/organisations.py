"""Organisations: whose everything is, on which tier."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from services.accounts import text
from services.accounts.deeds import changed, deed
from services.accounts.organisation_store import OrganisationQueries
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import Conflict, InvalidRequest, NotFound
from services.common.messages import Json
from services.common.texts import new_id
from services.common.usage_ports import Tiers

NO_BUDGET = -1
MAX_BUDGET = 2**53
Clock = Callable[[], float]


class OrganisationService:
    def __init__(self, store: AccountStore, tiers: Tiers, clock: Clock = time.time):
        self._store = store
        self._tiers = tiers
        self._clock = clock

    async def create_organisation(self, request: a.NewOrganisation) -> a.Organisation:
        organisation = a.Organisation(
            id=new_id("org") if request.id is None else text.tenant(request.id),
            name=text.name(request.name),
            tier=self._tiers.tier(request.tier).name,
            region=text.region(request.region),
            operator=request.operator,
            created=self._clock(),
        )
        details = {"tier": organisation.tier, "region": organisation.region, "operator": organisation.operator}
        async with self._store.writing(OrganisationQueries) as db:
            if not await db.add(organisation):
                raise Conflict("There is already an organisation with this id.", param="id")
            await db.note(self._entry(organisation.id, request.actor, "organisation.create", details))
        return organisation

    async def organisation(self, id: str) -> a.Organisation:
        async with self._store.reading(OrganisationQueries) as db:
            return await _organisation(db, id)

    async def organisations(self) -> Sequence[a.Organisation]:
        async with self._store.reading(OrganisationQueries) as db:
            return await db.all()

    async def update_organisation(self, patch: a.OrganisationPatch) -> a.Organisation:
        wanted = self._wanted(patch)
        async with self._store.writing(OrganisationQueries) as db:
            organisation = await _organisation(db, patch.id, lock=True)
            changes, told = changed(organisation, wanted)
            if changes:
                await db.change(organisation.id, changes)
            if tier := told.pop("tier", None):
                await db.note(self._entry(organisation.id, patch.actor, "tier.change", tier))
            if told:
                await db.note(self._entry(organisation.id, patch.actor, "organisation.update", told))
        return msgspec.structs.replace(organisation, **changes)

    def _wanted(self, patch: a.OrganisationPatch) -> dict[str, Any]:
        wanted: dict[str, Any] = {}
        if patch.name is not None:
            wanted["name"] = text.name(patch.name)
        if patch.tier is not None:
            wanted["tier"] = self._tiers.tier(patch.tier).name
        if patch.region is not None:
            wanted["region"] = text.region(patch.region)
        if patch.monthly_budget is not None:
            wanted["monthly_budget"] = _budget(patch.monthly_budget)
        if patch.suspended is not None:
            wanted["suspended"] = patch.suspended
        return wanted

    def _entry(self, id: str, actor: str, action: str, details: Json) -> a.AuditEntry:
        return deed(a.Ref(id, id, actor), action, self._clock(), details)


async def _organisation(db: OrganisationQueries, id: str, *, lock: bool = False) -> a.Organisation:
    found = await db.get(id, lock=lock)
    if found is None:
        raise NotFound("There is no such organisation.")
    return found


def _budget(micro_units: int) -> int | None:
    if micro_units == NO_BUDGET:
        return None
    if not 0 <= micro_units <= MAX_BUDGET:
        raise InvalidRequest(f"A budget has 0 to {MAX_BUDGET} micro-units.", param="monthly_budget")
    return micro_units
