"""An engine without a model: deterministic tokens on a timing model. For tests and load, never the default."""

import asyncio
import hashlib
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.structs import replace

from inference.schemas import require_compilable
from services.common.errors import ContextLengthExceeded
from services.common.messages import (
    Capabilities,
    Event,
    Finished,
    GenerationRequest,
    Json,
    Load,
    Prefilled,
    Spent,
    TextDelta,
    TokenizeRequest,
    TokenLogprob,
    Tokens,
    Usage,
)

_WORDS = """
    choir voice answer phrase verse echo chant hymn psalm refrain measure cadence tone chord silence breath line
    response call hall stone light morning evening left right first second slow bright low high turn return
""".split()


class SimulatedEngine:
    """Each answer is a function of prompt, seed and temperature.

    ttft, itl: seconds to the first token and between tokens; prefill_rate: prompt tokens a second (0: free).
    length: tokens of an answer that is not cut by max_tokens or a stop string.
    """

    def __init__(
        self, model: str = "simulated", *, ttft: float = 0.0, itl: float = 0.0, prefill_rate: float = 0.0,
        length: int = 64, context_window: int = 8192,
    ):  # fmt: skip
        self.model = model
        self._ttft, self._itl, self._prefill_rate = ttft, itl, prefill_rate
        self._length, self._window = length, context_window
        self.running = 0
        self.prefilled = 0
        self.generated = 0
        """Tokens of prompts processed and tokens made over its whole life, cancelled answers included."""

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        if request.output_schema is not None:
            require_compilable(request.output_schema)
        ids = _prompt_ids(request)
        if len(ids) >= self._window:
            raise ContextLengthExceeded(
                f"This model's maximum context length is {self._window} tokens; the prompt has {len(ids)}.",
                param="messages" if request.prompt is None else "prompt",
            )
        self.running += 1
        try:
            await asyncio.sleep(self._ttft + (len(ids) / self._prefill_rate if self._prefill_rate else 0))
            self.prefilled += len(ids)
            made = 0
            async for delta, finish in self._tokens(request, ids):
                made += delta.tokens
                self.generated += delta.tokens
                begun: list[Event] = [Prefilled(len(ids))] if made == delta.tokens else []
                yield [*begun, delta] if finish is None else [*begun, delta, finish, Usage(len(ids), made)]
        finally:
            self.running -= 1

    async def _tokens(
        self, request: GenerationRequest, ids: tuple[int, ...]
    ) -> AsyncGenerator[tuple[TextDelta, Finished | None], None]:
        s = request.sampling
        whole = self._answer(request, ids)
        limit = max(1, min(self._window - len(ids), len(whole) if s.max_tokens is None else s.max_tokens))
        text = "".join(whole[:limit])
        end = min((text.find(word) for word in s.stop if word in text), default=len(text))
        at = 0
        for i, piece in enumerate(whole):
            piece = piece[: end - at]
            at += len(piece)
            last: Finished | None = None
            if i + 1 == len(whole) or (at == end and end < len(text)):
                last = Finished(0, "stop")
            elif i + 1 == limit:
                last = Finished(0, "length")
            probabilities = () if s.logprobs is None else (_logprob(piece, s.logprobs),)
            yield TextDelta(0, piece, 1, tuple(_ids(piece)), probabilities), last
            if last:
                return
            await asyncio.sleep(self._itl)

    def _answer(self, request: GenerationRequest, ids: tuple[int, ...]) -> list[str]:
        s = request.sampling
        said = ""
        if request.continue_last:
            said = request.messages[-1].content
            ids = _prompt_ids(replace(request, messages=request.messages[:-1]))
        # Greedy or seeded: the same answer to the same prompt. Otherwise another each time, as with a real model.
        seed = s.seed if s.seed is not None else (0 if s.temperature == 0 else random.getrandbits(63))
        source = random.Random(hashlib.sha256(msgspec.json.encode((ids, seed))).digest())  # noqa: S311 (not for secrets)
        if request.output_schema is not None:
            text = msgspec.json.encode(_instance(request.output_schema or {"type": "object"}, source)).decode()
            return [text[i : i + 4] for i in range(0, len(text), 4)]
        words = [source.choice(_allowed(s.logit_bias)) + " " for _ in range(self._length)]
        return _after(said, words)

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        if request.text is not None:
            ids = tuple(_ids(request.text))
        else:
            ids = _prompt_ids(GenerationRequest(model=self.model, messages=request.messages, tools=request.tools))
        return Tokens(len(ids), ids)

    async def capabilities(self) -> Capabilities:
        return Capabilities(
            model=self.model, context_window=self._window, structured_output=True, logprobs=True, continue_last=True
        )

    async def load(self) -> Load:
        return Load(healthy=True, running=self.running)

    async def settle(self, request_id: str) -> Spent | None:
        return None


def _ids(text: str) -> list[int]:
    return [int.from_bytes(hashlib.blake2s(w.encode(), digest_size=2).digest()) for w in text.split()]


def _allowed(bias: Mapping[int, float]) -> list[str]:
    biases = {word: bias.get(_ids(word)[0], 0.0) for word in _WORDS} if bias else {}
    forced = [word for word, b in biases.items() if b >= 100]
    return forced or [word for word in _WORDS if biases.get(word, 0.0) > -100]


def _after(said: str, words: list[str]) -> list[str]:
    """What is left of an answer that begins with what was said; the whole of any other."""
    if not "".join(words).startswith(said):
        return words
    ends = accumulate(len(word) for word in words)
    left = [
        word[max(0, len(word) - end + len(said)) :] for word, end in zip(words, ends, strict=True) if end > len(said)
    ]
    return left or [""]


def _prompt_ids(request: GenerationRequest) -> tuple[int, ...]:
    if isinstance(request.prompt, tuple):
        return request.prompt
    if request.prompt is not None:
        return tuple(_ids(request.prompt))
    texts = [f"{m.role}: {m.content}" for m in request.messages] + [t.name for t in request.tools]
    return tuple(i for text in texts for i in _ids(text))


def _logprob(token: str, top: int) -> TokenLogprob:
    others = tuple(TokenLogprob(w, -2.0 - i, tuple(w.encode())) for i, w in enumerate(_WORDS[:top]))
    return TokenLogprob(token, -0.5, tuple(token.encode()), others)


def _instance(schema: Json, source: random.Random) -> Any:
    """Some value that satisfies the common keywords of a schema."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return source.choice(schema["enum"])
    if "anyOf" in schema:
        return _instance(source.choice(schema["anyOf"]), source)
    match schema.get("type"):
        case "object":
            return {name: _instance(s, source) for name, s in schema.get("properties", {}).items()}
        case "array":
            return [_instance(schema.get("items", {}), source) for _ in range(max(1, schema.get("minItems", 1)))]
        case "integer" | "number":
            return max(schema.get("minimum", 0), 0)
        case "boolean":
            return source.random() < 0.5
        case "null":
            return None
        case _:
            return source.choice(_WORDS)
