"""Conversations and their trees of messages, kept in SQL.

`updated` is when a conversation last got a message or a change to anything but the branch that is shown. It only
ever grows, by a microsecond at least, whatever the clock does.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from services.common import messages as m
from services.common.errors import Conflict, InvalidRequest, NotFound
from services.common.texts import new_id, storable
from services.conversations.store import ConversationStore, Queries
from services.conversations.text import is_id

MAX_PAGE = 1000
Clock = Callable[[], float]


class ConversationService:
    def __init__(self, store: ConversationStore, clock: Clock = time.time):
        self._store = store
        self._clock = clock

    async def create(self, request: m.NewConversation) -> m.Conversation:
        now = self._clock()
        conversation = m.Conversation(
            id=new_id("conv"),
            tenant=request.tenant,
            title=storable(request.title),
            model=storable(request.model),
            system_prompt=storable(request.system_prompt),
            parameters=request.parameters,
            created=now,
            updated=now,
        )
        async with self._store.writing() as db:
            await db.add_conversation(conversation)
        return conversation

    async def get(self, ref: m.ConversationRef) -> m.Conversation:
        async with self._store.reading() as db:
            return await _conversation(db, ref.tenant, ref.id)

    async def find(self, query: m.ConversationQuery) -> m.ConversationPage:
        if not 1 <= query.limit <= MAX_PAGE:
            raise InvalidRequest(f"`limit` must be between 1 and {MAX_PAGE}.", param="limit")
        if query.before is not None and not math.isfinite(query.before):
            raise InvalidRequest("`before` must be a time in seconds since the epoch.", param="before")
        async with self._store.reading() as db:
            return await db.page(msgspec.structs.replace(query, text=storable(query.text)))

    async def update(self, patch: m.ConversationPatch) -> m.Conversation:
        changes = _changes(patch)
        async with self._store.writing() as db:
            conversation = await _conversation(db, patch.tenant, patch.id, lock=True)
            if patch.leaf_id is not None:
                await _check_member(db, conversation, patch.leaf_id)
            if changes.keys() - {"leaf_id"}:
                changes["updated"] = _later(self._clock(), conversation)
            if changes:
                await db.change_conversation(conversation.id, changes)
        return msgspec.structs.replace(conversation, **changes)

    async def delete(self, ref: m.ConversationRef) -> None:
        async with self._store.writing() as db:
            if not (is_id(ref.id, "conv") and await db.delete_conversation(ref.tenant, ref.id)):
                raise _no_conversation()


class MessageService:
    def __init__(self, store: ConversationStore, clock: Clock = time.time):
        self._store = store
        self._clock = clock

    async def append(self, message: m.NewMessage) -> m.StoredMessage:
        if message.id is not None and not is_id(message.id, "msg"):
            raise InvalidRequest("A message's id is `msg_` and 32 lower-case hexadecimal digits.", param="id")
        async with self._store.writing() as db:
            conversation = await _conversation(db, message.tenant, message.conversation_id, lock=True)
            if message.parent_id is not None:
                await _check_member(db, conversation, message.parent_id)
            stored = _stored(message, _later(self._clock(), conversation))
            if not await db.add_message(stored):
                raise Conflict("There is already a message with this id.", param="id")
            await db.change_conversation(conversation.id, {"leaf_id": stored.id, "updated": stored.created})
        return stored

    async def get(self, ref: m.MessageRef) -> m.StoredMessage:
        async with self._store.reading() as db:
            return await _message(db, ref.tenant, ref.id)

    async def update(self, patch: m.MessagePatch) -> m.StoredMessage:
        changes = _changes(patch)
        async with self._store.writing() as db:
            message = await _message(db, patch.tenant, patch.id, lock=True)
            if changes:
                await db.change_message(message.id, changes)
        return msgspec.structs.replace(message, **changes)

    async def path(self, ref: m.MessageRef) -> Sequence[m.StoredMessage]:
        async with self._store.reading() as db:
            found = await db.path(ref.tenant, ref.id) if is_id(ref.id, "msg") else ()
        if not found:
            raise _no_message()
        return found

    async def all(self, ref: m.ConversationRef) -> Sequence[m.StoredMessage]:
        async with self._store.reading() as db:
            conversation = await _conversation(db, ref.tenant, ref.id)
            return await db.all_messages(conversation.id)


async def _conversation(db: Queries, tenant: str, id: str, *, lock: bool = False) -> m.Conversation:
    found = await db.conversation(tenant, id, lock=lock) if is_id(id, "conv") else None
    if found is None:
        raise _no_conversation()
    return found


async def _message(db: Queries, tenant: str, id: str, *, lock: bool = False) -> m.StoredMessage:
    found = await db.message(tenant, id, lock=lock) if is_id(id, "msg") else None
    if found is None:
        raise _no_message()
    return found


async def _check_member(db: Queries, conversation: m.Conversation, message_id: str) -> None:
    if (await _message(db, conversation.tenant, message_id)).conversation_id != conversation.id:
        raise _no_message()


def _stored(new: m.NewMessage, created: float) -> m.StoredMessage:
    return m.StoredMessage(
        id=new.id or new_id("msg"),
        conversation_id=new.conversation_id,
        parent_id=new.parent_id,
        role=new.role,
        content=storable(new.content),
        status=new.status,
        model=storable(new.model),
        created=created,
    )


def _changes(patch: m.ConversationPatch | m.MessagePatch) -> dict[str, Any]:
    named = msgspec.structs.asdict(patch)
    del named["tenant"], named["id"]
    return {
        name: storable(value) if isinstance(value, str) else value for name, value in named.items() if value is not None
    }


def _later(now: float, conversation: m.Conversation) -> float:
    return max(now, conversation.updated + 1e-6)


def _no_conversation() -> NotFound:
    return NotFound("There is no such conversation.")


def _no_message() -> NotFound:
    return NotFound("There is no such message.")
