"""The ports of conversations as a test reaches them: in process, or through HTTP to a real server."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from services.common import messages as m
from services.common.ports import Conversations, Messages
from services.common.sql import migrate, open_database
from services.conversations.api import create_app
from services.conversations.client import ConversationsClient, MessagesClient
from services.conversations.service import ConversationService, MessageService
from services.conversations.store import MIGRATIONS, ConversationStore
from tests.support.http import served


class House:
    """Both ports, and shorthands for a test's usual steps."""

    def __init__(self, conversations: Conversations, messages: Messages):
        self.conversations = conversations
        self.messages = messages
        self._names: Iterator[int] = itertools.count()

    def tenant(self) -> str:
        return f"tenant-{next(self._names)}"

    async def start(self, tenant: str, title: str = "") -> m.Conversation:
        return await self.conversations.create(m.NewConversation(tenant=tenant, title=title))

    async def say(
        self,
        conversation: m.Conversation,
        content: str = "",
        parent: m.StoredMessage | None = None,
        id: str | None = None,
    ) -> m.StoredMessage:
        return await self.messages.append(
            m.NewMessage(
                tenant=conversation.tenant,
                conversation_id=conversation.id,
                parent_id=parent.id if parent else None,
                role="user",
                content=content,
                id=id,
            )
        )

    async def titles(self, tenant: str, text: str = "", before: float | None = None, limit: int = 50) -> list[str]:
        query = m.ConversationQuery(tenant=tenant, text=text, before=before, limit=limit)
        return [item.title for item in (await self.conversations.find(query)).items]


def ref(conversation: m.Conversation) -> m.ConversationRef:
    return m.ConversationRef(conversation.tenant, conversation.id)


@asynccontextmanager
async def opened(place: str, database_url: str) -> AsyncIterator[House]:
    engine = open_database(database_url)
    await migrate(engine, "conversations", MIGRATIONS)
    store = ConversationStore(engine)
    conversations, messages = ConversationService(store), MessageService(store)
    if place == "http":
        async with served(create_app(conversations, messages)) as (url, session):
            yield House(ConversationsClient(url, session), MessagesClient(url, session))
    else:
        yield House(conversations, messages)
    await engine.dispose()
