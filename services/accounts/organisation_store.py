"""Every query on organisations. SQLite and PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts.store import Queries
from services.accounts.tables import organisations
from services.common.account_messages import Organisation
from services.common.texts import storable

_ORGANISATION = [organisations.c[name] for name in Organisation.__struct_fields__]


async def organisation_exists(db: AsyncConnection, tenant: str) -> bool:
    chosen = select(organisations.c.id).where(organisations.c.id == storable(tenant))
    return (await db.execute(chosen)).first() is not None


class OrganisationQueries(Queries):
    async def add(self, organisation: Organisation) -> bool:
        """False if the id is taken; the transaction is then lost."""
        try:
            await self.connection.execute(insert(organisations).values(msgspec.structs.asdict(organisation)))
        except IntegrityError:
            return False
        return True

    async def get(self, id: str, *, lock: bool = False) -> Organisation | None:
        """With `lock`, nobody else changes it until this transaction ends."""
        chosen = select(*_ORGANISATION).where(organisations.c.id == storable(id))
        row = (await self.connection.execute(chosen.with_for_update() if lock else chosen)).one_or_none()
        return Organisation(**row._mapping) if row else None

    async def all(self) -> Sequence[Organisation]:
        """Oldest first."""
        chosen = select(*_ORGANISATION).order_by(organisations.c.created, organisations.c.id)
        return tuple(Organisation(**row._mapping) for row in await self.connection.execute(chosen))

    async def change(self, id: str, changes: Mapping[str, Any]) -> None:
        await self.connection.execute(update(organisations).where(organisations.c.id == id).values(changes))
