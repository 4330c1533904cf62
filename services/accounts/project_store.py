"""Every query on projects and service accounts. SQLite and PostgreSQL."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import delete, insert, select, update

from services.accounts.key_store import revoke_keys_of
from services.accounts.organisation_store import organisation_exists
from services.accounts.session_store import remove_sessions_of
from services.accounts.store import Queries, owned
from services.accounts.tables import projects, service_accounts
from services.common.account_messages import Project, ServiceAccount
from services.common.texts import storable

_PROJECT = [projects.c[name] for name in Project.__struct_fields__]
_ACCOUNT = [service_accounts.c[name] for name in ServiceAccount.__struct_fields__]


class ProjectQueries(Queries):
    async def organisation_exists(self, tenant: str) -> bool:
        return await organisation_exists(self.connection, tenant)

    async def add(self, project: Project) -> None:
        await self.connection.execute(insert(projects).values(msgspec.structs.asdict(project)))

    async def get(self, tenant: str, id: str, *, lock: bool = False) -> Project | None:
        """With `lock`, nobody else changes it until this transaction ends."""
        chosen = select(*_PROJECT).where(owned(projects, tenant, id))
        row = (await self.connection.execute(chosen.with_for_update() if lock else chosen)).one_or_none()
        return Project(**row._mapping) if row else None

    async def of(self, tenant: str) -> Sequence[Project]:
        """Oldest first."""
        chosen = select(*_PROJECT).where(projects.c.tenant == storable(tenant))
        rows = await self.connection.execute(chosen.order_by(projects.c.created, projects.c.id))
        return tuple(Project(**row._mapping) for row in rows)

    async def change(self, id: str, changes: Mapping[str, Any]) -> None:
        await self.connection.execute(update(projects).where(projects.c.id == id).values(changes))


class ServiceAccountQueries(ProjectQueries):
    async def add_account(self, account: ServiceAccount) -> None:
        await self.connection.execute(insert(service_accounts).values(msgspec.structs.asdict(account)))

    async def accounts_of(self, tenant: str) -> Sequence[ServiceAccount]:
        """Oldest first."""
        chosen = select(*_ACCOUNT).where(service_accounts.c.tenant == storable(tenant))
        rows = await self.connection.execute(chosen.order_by(service_accounts.c.created, service_accounts.c.id))
        return tuple(ServiceAccount(**row._mapping) for row in rows)

    async def remove_account(self, tenant: str, id: str) -> bool:
        """With its sessions; its keys stay in the list, revoked. False if the tenant has no such account."""
        removed = await self.connection.execute(delete(service_accounts).where(owned(service_accounts, tenant, id)))
        if not removed.rowcount:
            return False
        await remove_sessions_of(self.connection, tenant, id)
        await revoke_keys_of(self.connection, tenant, id)
        return True
