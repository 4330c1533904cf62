"""The ports `Conversations` and `Messages`, kept by another process."""

from collections.abc import Sequence

import aiohttp

from services.common import messages as m
from services.common.http import Peer


class ConversationsClient:
    def __init__(self, base_url: str, session: aiohttp.ClientSession):
        self._peer = Peer(f"{base_url.rstrip('/')}/conversations", session)

    async def create(self, request: m.NewConversation) -> m.Conversation:
        return await self._peer.call("create", request, m.Conversation)

    async def get(self, ref: m.ConversationRef) -> m.Conversation:
        return await self._peer.call("get", ref, m.Conversation)

    async def find(self, query: m.ConversationQuery) -> m.ConversationPage:
        return await self._peer.call("find", query, m.ConversationPage)

    async def update(self, patch: m.ConversationPatch) -> m.Conversation:
        return await self._peer.call("update", patch, m.Conversation)

    async def delete(self, ref: m.ConversationRef) -> None:
        await self._peer.call("delete", ref, None)


class MessagesClient:
    def __init__(self, base_url: str, session: aiohttp.ClientSession):
        self._peer = Peer(f"{base_url.rstrip('/')}/messages", session)

    async def append(self, message: m.NewMessage) -> m.StoredMessage:
        return await self._peer.call("append", message, m.StoredMessage)

    async def get(self, ref: m.MessageRef) -> m.StoredMessage:
        return await self._peer.call("get", ref, m.StoredMessage)

    async def update(self, patch: m.MessagePatch) -> m.StoredMessage:
        return await self._peer.call("update", patch, m.StoredMessage)

    async def path(self, ref: m.MessageRef) -> Sequence[m.StoredMessage]:
        return await self._peer.call("path", ref, tuple[m.StoredMessage, ...])

    async def all(self, ref: m.ConversationRef) -> Sequence[m.StoredMessage]:
        return await self._peer.call("all", ref, tuple[m.StoredMessage, ...])
