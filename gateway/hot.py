"""The routes that cost: one function each, from body to last byte."""

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Protocol

from msgspec.structs import replace

from gateway.dialects.chat_completions import ChatAnswer, ChatStream
from gateway.dialects.chat_request import ChatRequest
from gateway.dialects.completions import CompletionAnswer, CompletionRequest, CompletionStream
from gateway.dialects.embeddings import EmbeddingsBody
from gateway.dialects.wire import DONE, parse
from gateway.exchange import Exchange
from gateway.settings import GatewaySettings
from gateway.strict_json import parse_object
from services.chat.turn import Turn, TurnEngine
from services.common.messages import Event, GenerationRequest, Usage
from services.common.ports import Embedder, EventStream
from services.common.streams import merge
from services.common.telemetry import TOKENS, TTFT


class Encoder(Protocol):
    def encode(self, events: Sequence[Event]) -> bytes: ...


class Collector(Protocol):
    def take(self, events: Sequence[Event]) -> None: ...

    def body(self) -> bytes: ...


class HotRoutes:
    def __init__(self, turns: TurnEngine, embedder: Embedder, settings: GatewaySettings):
        self._turns = turns
        self._embedder = embedder
        self._most = settings.max_choices

    async def chat(self, x: Exchange) -> None:
        body = parse(ChatRequest, parse_object(await x.body()))
        include_usage = body.include_usage()
        request = body.generation(x.request_id, x.principal.tenant, self._most)
        events = self._turns.run(Turn(request=request))
        if body.stream:
            await _stream(x, body.model, events, ChatStream(x.request_id, body.model, include_usage))
        else:
            await _whole(x, body.model, events, ChatAnswer(x.request_id, body.model, request.n))

    async def completions(self, x: Exchange) -> None:
        body = parse(CompletionRequest, parse_object(await x.body()))
        include_usage = body.include_usage()
        requests = body.generations(x.request_id, x.principal.tenant, self._most)
        events = self._all(requests)
        if body.stream:
            await _stream(x, body.model, events, CompletionStream(x.request_id, body.model, include_usage))
        else:
            n = len(requests) * requests[0].n
            await _whole(x, body.model, events, CompletionAnswer(x.request_id, body.model, n))

    async def embeddings(self, x: Exchange) -> None:
        body = parse(EmbeddingsBody, parse_object(await x.body()))
        x.watch()
        found = await self._embedder.embed(body.request())
        TOKENS.labels(body.model, "prompt").inc(found.prompt_tokens)
        x.note |= {"model": body.model, "prompt_tokens": found.prompt_tokens}
        await x.answer(200, body.answer(found))

    def _all(self, requests: list[GenerationRequest]) -> EventStream:
        streams = [self._turns.run(Turn(request=r)) for r in requests]
        return streams[0] if len(streams) == 1 else _side_by_side(streams, requests[0].n)


async def _side_by_side(streams: Sequence[EventStream], n: int) -> AsyncGenerator[Sequence[Event], None]:
    """Choice i of stream k becomes choice k·n + i; one usage, the sum, at the end."""
    prompt = completion = cached = 0
    async with aclosing(merge(streams)) as merged:
        async for number, batch in merged:
            out: list[Event] = []
            for event in batch:
                if isinstance(event, Usage):
                    prompt += event.prompt_tokens
                    completion += event.completion_tokens
                    cached += event.cached_tokens
                else:
                    out.append(replace(event, index=number * n + event.index))
            yield out
    yield [Usage(prompt, completion, cached)]


async def _stream(x: Exchange, model: str, events: EventStream, encoder: Encoder) -> None:
    """The status line waits for the first events, so that what fails before them is a status and not a broken stream."""
    x.expect_stream()
    began = time.perf_counter()
    first, tail = True, b""
    async with aclosing(events):
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


async def _whole(x: Exchange, model: str, events: EventStream, collector: Collector) -> None:
    x.watch()
    began = time.perf_counter()
    first = True
    async with aclosing(events):
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
