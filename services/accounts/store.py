"""Transactions on the tables of accounts. What is asked in them is in the `*_store.py` files beside this one."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import ColumnElement, Table, and_
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.accounts import audit_store
from services.accounts.chain import Chain
from services.accounts.tables import metadata
from services.common.account_messages import AuditEntry, AuditQuery, AuditReport
from services.common.sql import reading, writing
from services.common.texts import storable

__all__ = ["MIGRATIONS", "AccountStore", "AuditQueries", "Queries", "metadata", "owned"]

MIGRATIONS = Path(__file__).parent / "migrations"


def owned(table: Table, tenant: str, id: str) -> ColumnElement[bool]:
    """The row with this id, if it is the tenant's."""
    return and_(table.c.tenant == storable(tenant), table.c.id == storable(id))


class Queries:
    """Those of one transaction. Values are storable; nothing is checked but what a row must be."""

    def __init__(self, connection: AsyncConnection, chain: Chain):
        self.connection = connection
        self._chain = chain

    async def note(self, entry: AuditEntry) -> AuditEntry:
        """Into the audit log: the deed and its entry are one commit. The last thing that a transaction does."""
        return await audit_store.add(self.connection, self._chain, entry)


class AuditQueries(Queries):
    async def find(self, query: AuditQuery) -> Sequence[AuditEntry]:
        return await audit_store.find(self.connection, query)

    async def verify(self) -> AuditReport:
        return await audit_store.verify(self.connection, self._chain)


Q = TypeVar("Q", bound=Queries)


class AccountStore:
    def __init__(self, engine: AsyncEngine, pepper: bytes):
        self._engine = engine
        self._chain = Chain(pepper)

    @asynccontextmanager
    async def reading(self, queries: type[Q]) -> AsyncIterator[Q]:
        async with reading(self._engine) as connection:
            yield queries(connection, self._chain)

    @asynccontextmanager
    async def writing(self, queries: type[Q]) -> AsyncIterator[Q]:
        """One transaction: all of it or nothing."""
        async with writing(self._engine) as connection:
            yield queries(connection, self._chain)
