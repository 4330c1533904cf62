"""The engine for any OpenAI-compatible server, vLLM included, over pooled keep-alive connections.

Streams come over the lean client and typed msgspec decoding, what is rare over aiohttp: see docs/adr/0003-hot-path.md.
"""

import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import aiohttp
import msgspec

from inference.openai_request import generation_body, tokenize_body
from inference.openai_stream import Translation
from services.common.errors import (
    AntiphonError,
    ContextLengthExceeded,
    EngineFailed,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
)
from services.common.http import sse_batches
from services.common.lean_http import ConnectionBroken, LeanClient, Target
from services.common.messages import (
    WHOLE_PROMPT,
    Capabilities,
    Event,
    GenerationRequest,
    Load,
    Prefilled,
    Spent,
    TokenizeRequest,
    Tokens,
)

ASK_AGAIN_S = 60.0
"""How long a server that does not tokenise is not asked to."""


class _Tokenized(msgspec.Struct):
    count: int
    tokens: tuple[int, ...]


def _estimated(request: TokenizeRequest) -> Tokens:
    """Three bytes a token errs on the safe side for most languages."""
    texts = [request.text or "", *(m.content for m in request.messages)]
    texts += [msgspec.json.encode(t).decode() for t in request.tools]
    return Tokens(sum(len(t.encode("utf-8", "replace")) // 3 + 8 for t in texts))


class OpenAIEngine:
    """base_url ends before `/chat/completions`, as in the official clients (`http://host:8000/v1`).

    upstream_model: the name by which the server knows the model. context_window: asked of the server where it tells
    (vLLM's `max_model_len`).
    """

    def __init__(
        self, model: str, base_url: str, session: aiohttp.ClientSession, client: LeanClient, *,
        upstream_model: str | None = None, api_key: str | None = None, context_window: int = 8192,
    ):  # fmt: skip
        self.model = model
        self._base = base_url.rstrip("/")
        self._session = session
        self._upstream_model = upstream_model or model
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._headers["Content-Type"] = "application/json"
        paths = ("/chat/completions", "/completions")
        self._targets = {path: Target(self._base + path, self._headers) for path in paths}
        self._tokenizer = Target(self._base.removesuffix("/v1") + "/tokenize", self._headers)
        self._no_tokenizer_until = 0.0
        self._client = client
        self._window = context_window
        self._running = 0

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        path, body = generation_body(self._upstream_model, request)
        translate = Translation(request.n)
        self._running += 1
        try:
            async with self._client.post(self._targets[path], body) as answer:
                if answer.status != 200:
                    raise self._refusal(answer.status, await answer.read())
                yield [Prefilled(WHOLE_PROMPT)]
                async for batch in sse_batches(answer):
                    events: list[Event] = []
                    for _, data in batch:
                        translate.feed(data, events)
                    if events:
                        yield events
            if translate.open:
                raise EngineFailed(f"The server of {self.model} stopped in the middle of its answer.")
            yield [translate.usage()]
        except (ConnectionBroken, aiohttp.ClientError, msgspec.DecodeError) as e:
            raise EngineFailed(f"The server of {self.model} failed: {type(e).__name__}.") from e
        finally:
            self._running -= 1

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        if time.monotonic() < self._no_tokenizer_until:
            return _estimated(request)
        try:
            async with self._client.post(self._tokenizer, tokenize_body(self._upstream_model, request)) as answer:
                found = msgspec.json.decode(await answer.read(), type=_Tokenized)
                return Tokens(found.count, found.tokens)
        except ConnectionBroken as e:
            raise EngineFailed(f"The server of {self.model} failed: {type(e).__name__}.") from e
        except msgspec.DecodeError:  # only vLLM and its kin tokenise as asked here
            self._no_tokenizer_until = time.monotonic() + ASK_AGAIN_S
            return _estimated(request)

    async def capabilities(self) -> Capabilities:
        window = self._window
        for card in await self._models():
            if card.get("id") == self._upstream_model:
                window = int(card.get("max_model_len") or window)
        return Capabilities(
            model=self.model,
            context_window=window,
            tools=True,
            structured_output=True,
            logprobs=True,
            continue_last=True,
        )

    async def load(self) -> Load:
        try:
            await self._models()
        except AntiphonError as e:
            return Load(healthy=False, running=self._running, detail=e.message)
        return Load(healthy=True, running=self._running)

    async def settle(self, request_id: str) -> Spent | None:
        return None  # `Metered` around it counts

    async def _models(self) -> list[dict[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with self._session.get(f"{self._base}/models", headers=self._headers, timeout=timeout) as response:
                if response.status != 200:
                    raise EngineFailed(f"The server of {self.model} answered {response.status}.")
                return list((await response.json())["data"])
        except (aiohttp.ClientError, TimeoutError, KeyError, TypeError, ValueError) as e:
            raise EngineFailed(f"The server of {self.model} cannot be reached: {type(e).__name__}.") from e

    def _refusal(self, status: int, body: bytes) -> AntiphonError:
        try:
            error = msgspec.json.decode(body)
            error = error.get("error", error)
            message, code, param = str(error["message"]), error.get("code"), error.get("param")
            too_long = code == "context_length_exceeded" or error.get("type") == "exceed_context_size_error"
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
            message, too_long, param = f"The server of {self.model} answered {status}.", False, None
        if status == 400 and (too_long or "context length" in message):
            return ContextLengthExceeded(message, param="messages")
        if status in (400, 422):
            return InvalidRequest(message, param=param)
        if status == 404:
            return ModelNotFound.named(self.model)
        if status in (429, 503):
            return Overloaded(message, retry_after=1)
        # 401 and the like are the operator's to mend, and must not look like the caller's fault.
        return EngineFailed(f"The server of {self.model} answered {status}.")
