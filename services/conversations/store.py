"""The tables of conversations and messages, and every query on them. SQLite and PostgreSQL."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.common import messages as m
from services.common.sql import reading, writing
from services.conversations.text import folded

MIGRATIONS = Path(__file__).parent / "migrations"


class JsonText(TypeDecorator[m.Json]):
    """JSON in a text column: PostgreSQL's own types refuse \\u0000."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        return msgspec.json.encode(value).decode()

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        return msgspec.json.decode(value)


metadata = MetaData()

conversations = Table(
    "conversations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("title_folded", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("system_prompt", Text, nullable=False),
    Column("parameters", JsonText, nullable=False),
    Column("leaf_id", Text),
    Column("created", Double, nullable=False),
    Column("updated", Double, nullable=False),
    Index("conversations_newest", "tenant", "updated"),
)

messages = Table(
    "messages",
    metadata,
    Column("id", Text, primary_key=True),
    Column("conversation_id", Text, ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("parent_id", Text),
    Column("role", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("content_folded", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("finish_reason", Text),
    Column("error", Text),
    Column("usage", JsonText, nullable=False),
    Column("created", Double, nullable=False),
    UniqueConstraint("conversation_id", "position", name="messages_in_order"),
)

_CONVERSATION = [conversations.c[name] for name in m.Conversation.__struct_fields__]
_MESSAGE = [messages.c[name] for name in m.StoredMessage.__struct_fields__]
_FOLDED = {"title": "title_folded", "content": "content_folded"}


class Queries:
    """The queries of one transaction. Values are storable; nothing is checked but what a row must be."""

    def __init__(self, connection: AsyncConnection):
        self._db = connection
        self._position_of = func.instr if connection.dialect.name == "sqlite" else func.strpos

    async def add_conversation(self, conversation: m.Conversation) -> None:
        await self._db.execute(insert(conversations).values(_row(msgspec.structs.asdict(conversation))))

    async def conversation(self, tenant: str, id: str, *, lock: bool = False) -> m.Conversation | None:
        """With `lock`, nobody else changes the conversation or adds to it until this transaction ends."""
        query = select(*_CONVERSATION).where(conversations.c.id == id, conversations.c.tenant == tenant)
        row = (await self._db.execute(query.with_for_update() if lock else query)).one_or_none()
        return m.Conversation(**row._mapping) if row else None

    async def page(self, query: m.ConversationQuery) -> m.ConversationPage:
        """May exceed the limit: conversations updated at one instant are never parted, so that `before` is exact."""
        wanted = self._matching(query)
        rows = (await self._db.execute(wanted.limit(query.limit + 1))).all()
        more = len(rows) > query.limit
        if more and rows[-2].updated == rows[-1].updated:
            instant = rows[-1].updated
            same = (await self._db.execute(wanted.where(conversations.c.updated == instant))).all()
            older = wanted.where(conversations.c.updated < instant).limit(1)
            rows = [row for row in rows if row.updated > instant] + list(same)
            more = (await self._db.execute(older)).first() is not None
        else:
            rows = rows[: query.limit]
        return m.ConversationPage(tuple(m.Conversation(**row._mapping) for row in rows), more)

    def _matching(self, query: m.ConversationQuery) -> Select[Any]:
        wanted = select(*_CONVERSATION).where(conversations.c.tenant == query.tenant)
        if query.before is not None:
            wanted = wanted.where(conversations.c.updated < query.before)
        if query.text:
            text = folded(query.text)
            in_message = exists().where(
                messages.c.conversation_id == conversations.c.id, self._holds(messages.c.content_folded, text)
            )
            wanted = wanted.where(or_(self._holds(conversations.c.title_folded, text), in_message))
        return wanted.order_by(conversations.c.updated.desc(), conversations.c.id)

    def _holds(self, column: Column[str], text: str) -> ColumnElement[bool]:
        # Not LIKE: it needs escaping, and SQLite refuses patterns above 50 kB.
        return self._position_of(column, text) > 0

    async def change_conversation(self, id: str, changes: Mapping[str, Any]) -> None:
        await self._db.execute(update(conversations).where(conversations.c.id == id).values(_row(changes)))

    async def delete_conversation(self, tenant: str, id: str) -> bool:
        chosen = delete(conversations).where(conversations.c.id == id, conversations.c.tenant == tenant)
        return (await self._db.execute(chosen)).rowcount > 0

    async def add_message(self, message: m.StoredMessage) -> bool:
        """At the end of its conversation, which is locked. False if the id is taken; the transaction is then lost."""
        last = select(func.coalesce(func.max(messages.c.position), 0)).where(
            messages.c.conversation_id == message.conversation_id
        )
        row = _row(msgspec.structs.asdict(message)) | {"position": last.scalar_subquery() + 1}
        try:
            await self._db.execute(insert(messages).values(row))
        except IntegrityError:
            return False
        return True

    async def message(self, tenant: str, id: str, *, lock: bool = False) -> m.StoredMessage | None:
        query = _messages_of(tenant).where(messages.c.id == id)
        row = (await self._db.execute(query.with_for_update(of=messages) if lock else query)).one_or_none()
        return m.StoredMessage(**row._mapping) if row else None

    async def change_message(self, id: str, changes: Mapping[str, Any]) -> None:
        await self._db.execute(update(messages).where(messages.c.id == id).values(_row(changes)))

    async def path(self, tenant: str, id: str) -> Sequence[m.StoredMessage]:
        """Empty if the tenant has no such message."""
        branch = _messages_of(tenant).add_columns(messages.c.position).where(messages.c.id == id).cte(recursive=True)
        parents = select(*_MESSAGE, messages.c.position).where(messages.c.id == branch.c.parent_id)
        branch = branch.union_all(parents)
        fields = [branch.c[column.name] for column in _MESSAGE]
        return await self._messages(select(*fields).order_by(branch.c.position))

    async def all_messages(self, conversation_id: str) -> Sequence[m.StoredMessage]:
        chosen = select(*_MESSAGE).where(messages.c.conversation_id == conversation_id)
        return await self._messages(chosen.order_by(messages.c.position))

    async def _messages(self, query: Select[Any]) -> Sequence[m.StoredMessage]:
        return tuple(m.StoredMessage(**row._mapping) for row in await self._db.execute(query))


def _messages_of(tenant: str) -> Select[Any]:
    return select(*_MESSAGE).join(conversations).where(conversations.c.tenant == tenant)


def _row(values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(values) | {_FOLDED[name]: folded(values[name]) for name in _FOLDED.keys() & values.keys()}


class ConversationStore:
    def __init__(self, engine: AsyncEngine):
        self._engine = engine

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Queries]:
        async with reading(self._engine) as connection:
            yield Queries(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[Queries]:
        """One transaction: all of it or nothing."""
        async with writing(self._engine) as connection:
            yield Queries(connection)
