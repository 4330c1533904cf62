"""Embeddings, admitted and accounted like generations."""

import asyncio

from msgspec import Struct

from services.chat.metering import Meter
from services.common.account_messages import Principal
from services.common.messages import Admitted, EmbeddingRequest, Embeddings, Spent
from services.common.ports import Embedder
from services.common.usage_messages import OpenUsage, Outcome, UsageRecord

CLASS = "embedding"


class Embedded(Struct, frozen=True):
    admitted: Admitted
    embeddings: Embeddings


class EmbeddingEngine:
    def __init__(self, embedder: Embedder, meter: Meter):
        self._embedder = embedder
        self._meter = meter

    async def run(self, who: Principal, request_id: str, request: EmbeddingRequest) -> Embedded:
        """Errors: the embedder's and the limiter's. Once begun it is charged: the model runs to its end."""
        meter = self._meter
        meter.require_permitted(who, request.model)
        tokens = await self._embedder.count(request)
        begun = meter.begun(who, request_id, CLASS, request.model, "embedder", tokens)
        reservation = await meter.reserve(who, CLASS, [begun])
        records: list[UsageRecord] = []
        try:
            slot = meter.journal.begin(OpenUsage(record=begun, reservation=reservation.id))
            outcome: Outcome = "failed"
            used = Spent(0)
            try:
                embeddings = await self._embedder.embed(request)
                outcome, used = "finished", Spent(embeddings.prompt_tokens)
            except asyncio.CancelledError:
                outcome, used = "cancelled", Spent(begun.prompt_tokens)
                raise
            finally:
                records.append(meter.ended(begun, used, outcome))
                meter.journal.end(slot, records[0])
        finally:
            await asyncio.shield(meter.whatever_happens(meter.settle(reservation, records)))
        return Embedded(reservation.admitted, embeddings)
