"""Every query on API keys. SQLite and PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, delete, insert, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts import principal_store as principals
from services.accounts.store import Queries, owned
from services.accounts.tables import api_keys, organisations, projects, service_accounts, sessions, users
from services.common.account_messages import ApiKey, KeyQuery, Principal
from services.common.texts import storable

_KEY = [api_keys.c[name] for name in ApiKey.__struct_fields__ if name != "secret"]
USED_S = 60.0
"""How exact `last_used` is."""


async def revoke_keys_of(db: AsyncConnection, tenant: str, owner: str) -> int:
    """How many were not revoked yet."""
    mine = (api_keys.c.tenant == tenant, api_keys.c.owner == owner, api_keys.c.revoked.is_(False))
    return (await db.execute(update(api_keys).where(*mine).values(revoked=True))).rowcount


class KeyQueries(Queries):
    async def principal(self, digest: str, now: float) -> Principal | None:
        return await principals.of_key(self.connection, api_keys.c.digest == digest, now)

    async def is_operator(self, tenant: str) -> bool | None:
        """None: there is no such organisation."""
        chosen = select(organisations.c.operator).where(organisations.c.id == storable(tenant))
        operator: bool | None = (await self.connection.execute(chosen)).scalar_one_or_none()
        return operator

    async def has_user(self, tenant: str, id: str) -> bool:
        return (await self.connection.execute(select(users.c.id).where(owned(users, tenant, id)))).first() is not None

    async def project_of_account(self, tenant: str, id: str) -> str | None:
        """ "": it is in none. None: there is no such service account."""
        chosen = select(service_accounts.c.project).where(owned(service_accounts, tenant, id))
        project: str | None = (await self.connection.execute(chosen)).scalar_one_or_none()
        return project

    async def is_archived(self, tenant: str, project: str) -> bool | None:
        """None: there is no such project."""
        chosen = select(projects.c.archived).where(owned(projects, tenant, project))
        archived: bool | None = (await self.connection.execute(chosen)).scalar_one_or_none()
        return archived

    async def add(self, key: ApiKey, digest: str) -> None:
        row = {column.name: getattr(key, column.name) for column in _KEY}
        row |= {"scopes": ",".join(key.scopes), "models": ",".join(key.models), "digest": digest}
        await self.connection.execute(insert(api_keys).values(row))

    async def find(self, query: KeyQuery) -> Sequence[ApiKey]:
        chosen = (
            select(*_KEY)
            .where(api_keys.c.tenant == storable(query.tenant))
            .where(true() if query.owner is None else api_keys.c.owner == storable(query.owner))
            .where(true() if query.project is None else api_keys.c.project == storable(query.project))
        )
        rows = await self.connection.execute(chosen.order_by(api_keys.c.created, api_keys.c.id))
        return tuple(_key(row) for row in rows)

    async def revoke(self, tenant: str, id: str) -> bool | None:
        """With the sessions that it opened. False if it is revoked already; None if the tenant has no such key."""
        mine = owned(api_keys, tenant, id)
        done = await self.connection.execute(
            update(api_keys).where(mine, api_keys.c.revoked.is_(False)).values(revoked=True)
        )
        if done.rowcount:
            await self.connection.execute(delete(sessions).where(sessions.c.key_id == id))
            return True
        known = (await self.connection.execute(select(api_keys.c.id).where(mine))).first()
        return False if known else None

    async def used(self, times: Mapping[str, float]) -> None:
        """By key id. Writes nothing where another process has told of the same minute."""
        older = or_(api_keys.c.last_used.is_(None), api_keys.c.last_used <= bindparam("at") - USED_S)
        change = update(api_keys).where(api_keys.c.id == bindparam("key"), older).values(last_used=bindparam("at"))
        # In one order, so that two processes wait for each other rather than lock each other out.
        await self.connection.execute(change, [{"key": key, "at": times[key]} for key in sorted(times)])


def _key(row: Row[*tuple[Any, ...]]) -> ApiKey:
    fields = dict(row._mapping)
    for name in ("scopes", "models"):
        fields[name] = tuple(filter(None, fields[name].split(",")))
    return ApiKey(**fields)
