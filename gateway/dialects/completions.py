"""Legacy Completions: prompts in, text out."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from gateway.dialects.wire import SamplingFields, dumps, usage_json
from gateway.sse import frame
from services.common.errors import InvalidRequest
from services.common.messages import Event, Finished, GenerationRequest, TextDelta, TokenLogprob, Usage

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[list[TokenId], Field(fail_fast=True, min_length=1)]
DEFAULT_MAX_TOKENS = 16
"""The API's own default, unlike Chat Completions'."""


class CompletionRequest(SamplingFields):
    prompt: (
        str
        | Tokens
        | Annotated[list[str], Field(fail_fast=True, min_length=1, max_length=64)]
        | Annotated[list[Tokens], Field(fail_fast=True, min_length=1, max_length=64)]
    )
    logprobs: int | None = Field(None, ge=0, le=5)
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None

    def generations(self, request_id: str, tenant: str, most_choices: int) -> list[GenerationRequest]:
        """One generation a prompt. Errors: `InvalidRequest`."""
        for name in ("echo", "suffix"):
            if getattr(self, name):
                raise InvalidRequest(f"{name} is not supported.", param=name)
        n = self.choices(most_choices)
        if self.best_of not in (None, n):
            raise InvalidRequest("best_of is only supported when it equals n.", param="best_of")
        sampling = self.sampling(self.max_tokens or DEFAULT_MAX_TOKENS, self.logprobs)
        return [
            GenerationRequest(
                model=self.model, prompt=prompt, n=n, sampling=sampling, tenant=tenant,
                request_id=f"{request_id}-{i}" if i else request_id,
            )
            for i, prompt in enumerate(self._prompts())
        ]  # fmt: skip

    def _prompts(self) -> list[str | tuple[int, ...]]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if isinstance(prompt[0], int):
            return [tuple(t for t in prompt if isinstance(t, int))]
        return [tuple(p) if isinstance(p, list) else str(p) for p in prompt]


class CompletionStream:
    def __init__(self, request_id: str, model: str, include_usage: bool):
        self._head = {
            "id": f"cmpl-{request_id[4:]}", "object": "text_completion", "created": int(time.time()), "model": model,
        }  # fmt: skip
        self._include_usage = include_usage
        self._offsets: dict[int, int] = {}

    def encode(self, events: Sequence[Event]) -> bytes:
        out = []
        for event in events:
            if isinstance(event, TextDelta):
                offset = self._offsets.get(event.index, 0)
                self._offsets[event.index] = offset + len(event.text)
                out.append(self._chunk(_choice(event.index, event.text, event.logprobs, None, offset)))
            elif isinstance(event, Finished):
                out.append(self._chunk(_choice(event.index, "", (), event.reason, 0)))
            elif isinstance(event, Usage) and self._include_usage:
                out.append(frame(dumps(self._head | {"choices": [], "usage": usage_json(event)})))
        return b"".join(out)

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        usage = {"usage": None} if self._include_usage else {}
        return frame(dumps(self._head | {"choices": [choice]} | usage))


class CompletionAnswer:
    def __init__(self, request_id: str, model: str, n: int):
        self._id, self._model = request_id, model
        self._texts: list[list[TextDelta]] = [[] for _ in range(n)]
        self._finish: list[str] = ["stop"] * n
        self._usage = Usage()

    def take(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, TextDelta):
                self._texts[event.index].append(event)
            elif isinstance(event, Finished):
                self._finish[event.index] = event.reason
            elif isinstance(event, Usage):
                self._usage = event

    def body(self) -> bytes:
        choices = [
            _choice(
                i, "".join(d.text for d in deltas), tuple(p for d in deltas for p in d.logprobs), self._finish[i], 0
            )
            for i, deltas in enumerate(self._texts)
        ]
        return dumps({
            "id": f"cmpl-{self._id[4:]}", "object": "text_completion", "created": int(time.time()), "model": self._model,
            "choices": choices, "usage": usage_json(self._usage),
        })  # fmt: skip


def _choice(
    index: int, text: str, probabilities: Sequence[TokenLogprob], finish: str | None, offset: int
) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": _logprobs(probabilities, offset), "finish_reason": finish}


def _logprobs(probabilities: Sequence[TokenLogprob], offset: int) -> dict[str, Any] | None:
    """The legacy shape: four lists side by side; text_offset counts characters from the start of the completion."""
    if not probabilities:
        return None
    offsets = []
    for p in probabilities:
        offsets.append(offset)
        offset += len(p.token)
    return {
        "tokens": [p.token for p in probabilities],
        "token_logprobs": [p.logprob for p in probabilities],
        "top_logprobs": [{t.token: t.logprob for t in p.top} for p in probabilities],
        "text_offset": offsets,
    }
