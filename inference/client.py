"""The engine port over HTTP."""

from collections.abc import Sequence

from services.common.errors import AntiphonError
from services.common.http import Peer
from services.common.messages import Capabilities, Event, GenerationRequest, Load, Spent, TokenizeRequest, Tokens
from services.common.ports import EventStream


class EngineClient:
    def __init__(self, peer: Peer):
        self._peer = peer

    def generate(self, request: GenerationRequest) -> EventStream:
        return self._peer.stream("generate", request, Sequence[Event])

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        return await self._peer.call("tokenize", request, Tokens)

    async def capabilities(self) -> Capabilities:
        return await self._peer.call("capabilities", None, Capabilities)

    async def settle(self, request_id: str) -> Spent | None:
        return await self._peer.call("settle", request_id, Spent | None)

    async def load(self) -> Load:
        try:
            return await self._peer.call("load", None, Load)
        except AntiphonError as e:
            return Load(healthy=False, detail=e.message)
