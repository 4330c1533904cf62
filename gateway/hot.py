"""The routes that cost: one function each, from body to last byte."""

import time
from collections.abc import Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Protocol

from gateway.dialects.chat_completions import ChatAnswer, ChatStream
from gateway.dialects.chat_request import ChatRequest
from gateway.dialects.completions import CompletionAnswer, CompletionRequest, CompletionStream
from gateway.dialects.embeddings import EmbeddingsBody
from gateway.dialects.wire import DONE, parse
from gateway.exchange import Exchange, Headers, limit_headers
from gateway.settings import GatewaySettings
from gateway.strict_json import parse_object
from services.chat.embedding import EmbeddingEngine
from services.chat.turn import Turn, TurnEngine
from services.common.messages import Admitted, Event, Usage
from services.common.ports import EventStream
from services.common.telemetry import TOKENS, TTFT


class Encoder(Protocol):
    def encode(self, events: Sequence[Event]) -> bytes: ...


class Collector(Protocol):
    def take(self, events: Sequence[Event]) -> None: ...

    def body(self) -> bytes: ...


class HotRoutes:
    def __init__(self, turns: TurnEngine, embeddings: EmbeddingEngine, settings: GatewaySettings):
        self._turns = turns
        self._embeddings = embeddings
        self._most = settings.max_choices

    async def chat(self, x: Exchange) -> None:
        body = parse(ChatRequest, parse_object(await x.body()))
        include_usage = body.include_usage()
        request = body.generation(x.request_id, x.principal.tenant, self._most)
        events = self._turns.run(Turn(principal=x.principal, requests=(request,)))
        if body.stream:
            await _stream(x, body.model, events, ChatStream(x.request_id, body.model, include_usage))
        else:
            await _whole(x, body.model, events, ChatAnswer(x.request_id, body.model, request.n))

    async def completions(self, x: Exchange) -> None:
        body = parse(CompletionRequest, parse_object(await x.body()))
        include_usage = body.include_usage()
        requests = body.generations(x.request_id, x.principal.tenant, self._most)
        events = self._turns.run(Turn(principal=x.principal, requests=tuple(requests)))
        if body.stream:
            await _stream(x, body.model, events, CompletionStream(x.request_id, body.model, include_usage))
        else:
            n = len(requests) * requests[0].n
            await _whole(x, body.model, events, CompletionAnswer(x.request_id, body.model, n))

    async def embeddings(self, x: Exchange) -> None:
        body = parse(EmbeddingsBody, parse_object(await x.body()))
        x.watch()
        found = await self._embeddings.run(x.principal, x.request_id, body.request())
        x.limits = limit_headers(found.admitted)
        tokens = found.embeddings.prompt_tokens
        TOKENS.labels(body.model, "prompt").inc(tokens)
        x.note |= {"model": body.model, "prompt_tokens": tokens}
        await x.answer(200, body.answer(found.embeddings))


async def _stream(x: Exchange, model: str, events: EventStream, encoder: Encoder) -> None:
    """The status line waits for the first events, so that what fails before them is a status and not a broken stream."""
    x.expect_stream()
    began = time.perf_counter()
    first, tail = True, b""
    async with aclosing(events):
        x.limits = await _admission(events)
        async for batch in events:
            data = encoder.encode(batch)
            if first and data:
                first = False
                _note_first(x, model, began)
                if not x.streaming:  # a heartbeat may have begun it
                    await x.start_stream()
            if batch and isinstance(batch[-1], Usage):
                _note_usage(x, model, batch[-1])
                tail = data  # it is the last: let it go with what ends the stream
            elif data:
                await x.write(data)
    await x.end_stream(tail + DONE)


async def _admission(events: EventStream) -> Headers:
    """The first event of a turn: until it comes, the request waits or is refused."""
    [admitted] = await anext(events)
    assert isinstance(admitted, Admitted)
    return limit_headers(admitted)


async def _whole(x: Exchange, model: str, events: EventStream, collector: Collector) -> None:
    x.watch()
    began = time.perf_counter()
    first = True
    async with aclosing(events):
        x.limits = await _admission(events)
        async for batch in events:
            if first:
                first = False
                _note_first(x, model, began)
            collector.take(batch)
            if batch and isinstance(batch[-1], Usage):
                _note_usage(x, model, batch[-1])
    await x.answer(200, collector.body())


def _note_first(x: Exchange, model: str, began: float) -> None:
    ttft = time.perf_counter() - began
    _metrics(model).ttft.observe(ttft)
    x.note |= {"model": model, "ttft": round(ttft, 4)}


def _note_usage(x: Exchange, model: str, usage: Usage) -> None:
    metrics = _metrics(model)
    metrics.prompt.inc(usage.prompt_tokens)
    metrics.cached.inc(usage.cached_tokens)
    metrics.completion.inc(usage.completion_tokens)
    x.note |= {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}


class _Metrics:
    """One model's, looked up once: finding a metric by its labels costs more than counting."""

    def __init__(self, model: str):
        self.ttft = TTFT.labels(model)
        self.prompt, self.cached, self.completion = (
            TOKENS.labels(model, k) for k in ("prompt", "cached", "completion")
        )


_metrics = lru_cache(maxsize=1024)(_Metrics)
