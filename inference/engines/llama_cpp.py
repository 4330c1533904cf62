"""The engine for CPUs and small machines: llama.cpp's server in a supervised child process.

It takes raw prompts only (rendered by the server's own chat template), one sequence a request; `ToolCalling` and
`FanOut` around it add tool calls and n > 1. Schemas are checked with llguidance, the library that the server
enforces them with, because the server itself drops a grammar that it cannot compile without a word.
"""

import json
import secrets
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from inference.schemas import compact, require_compilable
from inference.settings import LlamaCppSettings
from inference.supervisor import Supervisor
from services.common.errors import AntiphonError, ContextLengthExceeded, EngineFailed, InvalidRequest
from services.common.http import sse_batches
from services.common.messages import (
    Capabilities,
    Event,
    Finished,
    GenerationRequest,
    Load,
    Message,
    Prefilled,
    Sampling,
    Spent,
    TextDelta,
    TokenizeRequest,
    TokenLogprob,
    Tokens,
    Tool,
    Usage,
)


class _Probability(msgspec.Struct):
    token: str = ""
    logprob: float = 0.0
    bytes: tuple[int, ...] = ()
    top_logprobs: "list[_Probability]" = []


class _Timings(msgspec.Struct):
    cache_n: int = 0


class _Progress(msgspec.Struct):
    processed: int = 0


class _Slot(msgspec.Struct):
    is_processing: bool


class _Chunk(msgspec.Struct):
    content: str = ""
    tokens: tuple[int, ...] = ()
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    timings: _Timings | None = None
    completion_probabilities: list[_Probability] = []
    prompt_progress: _Progress | None = None
    error: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Chunk).decode
_NO_LIMIT = aiohttp.ClientTimeout(total=None, sock_connect=10)
"""An answer takes as long as it takes; a session's own limit is five minutes unless somebody thought of it."""


class LlamaCppEngine:
    """One model file behind one child process. `start` before use, `stop` after."""

    def __init__(
        self, model: str, path: Path, settings: LlamaCppSettings, log_file: Path, session: aiohttp.ClientSession,
        context_length: int | None,
    ):  # fmt: skip
        self.model = model
        self._window = min(settings.context_window, context_length or settings.context_window)
        self._start_timeout = settings.start_timeout
        self._session = session
        key = secrets.token_urlsafe(32)
        # The server drops idle connections when it pleases; a new one on loopback costs 0.1 ms, a lost race a request.
        self._headers = {"Authorization": f"Bearer {key}", "Connection": "close"}
        options = settings.model_dump() | {"model": str(path), "context_window": self._window}
        command = [sys.executable, "-m", "inference.engines.llama_server", json.dumps(options)]
        self.supervisor = Supervisor(model, command, log_file, {"LLAMA_SERVER_KEY": key})
        self._shows_tools = True
        self._asked = 0

    async def start(self) -> None:
        await self.supervisor.start(self._start_timeout)
        question = (Message(role="user", content="?"),)
        tools = (Tool(name="probe_tool"),)
        # Some chat templates have no place for tools: then a system message tells the model about them.
        self._shows_tools = "probe_tool" in await self._render(question, tools, False)

    async def stop(self) -> None:
        await self.supervisor.stop()

    async def generate(self, request: GenerationRequest) -> AsyncGenerator[Sequence[Event], None]:
        if request.output_schema is not None:
            require_compilable(request.output_schema)
        prompt, given = request.prompt, "prompt"
        if prompt is None:
            given = "messages"
            prompt = await self._render(request.messages, request.tools, request.continue_last)
        body = _parameters(request.sampling) | {"prompt": prompt}
        if request.output_schema is not None:
            body["json_schema"] = compact(request.output_schema)
        self._asked += 1
        try:
            async with await self._post("/completion", body, given, timeout=_NO_LIMIT) as response:
                finished = False
                async for batch in sse_batches(response.content):
                    events: list[Event] = []
                    for _, data in batch:
                        finished |= _translate(_decode(data), request.sampling.logprobs or 0, events)
                    if events:
                        yield events
                if not finished:
                    raise await self._failure("stopped in the middle of its answer")
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise await self._failure(f"failed: {type(e).__name__}") from e
        finally:
            self._asked -= 1

    async def tokenize(self, request: TokenizeRequest) -> Tokens:
        text = request.text
        if text is None:
            text = await self._render(request.messages, request.tools, False)
        ids = (await self._json("/tokenize", {"content": text, "add_special": request.whole, "parse_special": True}))[
            "tokens"
        ]
        return Tokens(len(ids), tuple(ids))

    async def capabilities(self) -> Capabilities:
        return Capabilities(
            model=self.model, context_window=self._window, structured_output=True, logprobs=True, continue_last=True
        )

    async def load(self) -> Load:
        try:
            url = await self.supervisor.url(timeout=0.05)
            timeout = aiohttp.ClientTimeout(total=2)
            async with self._session.get(f"{url}/slots", headers=self._headers, timeout=timeout) as response:
                slots = msgspec.json.decode(await response.read(), type=list[_Slot])
        except (AntiphonError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            return Load(healthy=False, detail=str(e) or type(e).__name__)
        running = sum(slot.is_processing for slot in slots)
        return Load(healthy=True, running=running, waiting=max(0, self._asked - running))

    async def settle(self, request_id: str) -> Spent | None:
        return None  # `Metered` around it counts

    async def _render(self, messages: Sequence[Message], tools: Sequence[Tool], continue_last: bool) -> str:
        shown = list(messages)
        if tools and not self._shows_tools:
            shown = _describe_tools(shown, tools)
            tools = ()
        body: dict[str, Any] = {"messages": [_template_message(m) for m in shown]}
        if tools:
            body["tools"] = [{"type": "function", "function": _function(t)} for t in tools]
        tail = ""
        if continue_last:
            tail = body["messages"].pop()["content"]
        return str((await self._json("/apply-template", body))["prompt"]) + tail

    async def _json(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            async with await self._post(path, body) as response:
                return msgspec.json.decode(await response.read(), type=dict[str, Any])
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise await self._failure(f"failed: {type(e).__name__}") from e

    async def _failure(self, what: str) -> EngineFailed:
        # A broken connection is often the first sign of a death: who hears of it must not meet the dead child again.
        await self.supervisor.settle()
        return EngineFailed(f"The engine of {self.model} {what}.")

    async def _post(
        self, path: str, body: dict[str, Any], given: str = "messages", **options: Any
    ) -> aiohttp.ClientResponse:
        url, data = await self.supervisor.url(), msgspec.json.encode(body)
        response = await self._session.post(url + path, data=data, headers=self._headers, **options)
        if response.status != 200:
            async with response:
                raise _refusal(response.status, await response.read(), given)
        return response


def _parameters(s: Sampling) -> dict[str, Any]:
    body: dict[str, Any] = {
        # The server notices a closed connection only when it writes: with progress it does, also during the prefill.
        "stream": True, "return_progress": True, "return_tokens": True, "cache_prompt": True,
        "n_predict": -1 if s.max_tokens is None else s.max_tokens,
        "frequency_penalty": s.frequency_penalty, "presence_penalty": s.presence_penalty,
        "repeat_penalty": s.repetition_penalty, "repeat_last_n": 8192, "stop": s.stop,
        "logit_bias": list(s.logit_bias.items()),
    }  # fmt: skip
    optional = {"temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k, "min_p": s.min_p, "seed": s.seed}
    body |= {name: value for name, value in optional.items() if value is not None}
    if s.logprobs is not None:
        body["n_probs"] = max(1, s.logprobs)
    return body


def _translate(chunk: _Chunk, top: int, events: list[Event]) -> bool:
    """Append what the chunk says to `events`; True when it is the last one."""
    if chunk.error is not None:
        raise EngineFailed(str(chunk.error.get("message", "The engine failed.")))
    if chunk.prompt_progress is not None:
        events.append(Prefilled(chunk.prompt_progress.processed))
        return False
    if chunk.content or chunk.tokens:
        probabilities = tuple(_logprob(p, top) for p in chunk.completion_probabilities)
        events.append(TextDelta(0, chunk.content, len(chunk.tokens), chunk.tokens, probabilities))
    if not chunk.stop:
        return False
    events.append(Finished(0, "length" if chunk.stop_type == "limit" else "stop"))
    cached = chunk.timings.cache_n if chunk.timings else 0
    events.append(Usage(chunk.tokens_evaluated, chunk.tokens_predicted, cached))
    return True


def _logprob(p: _Probability, top: int = 0) -> TokenLogprob:
    return TokenLogprob(p.token, p.logprob, p.bytes, tuple(_logprob(other) for other in p.top_logprobs[:top]))


def _function(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _template_message(m: Message) -> dict[str, Any]:
    out: dict[str, Any] = {"role": "system" if m.role == "developer" else m.role, "content": m.content}
    if m.tool_calls:
        calls = ({"name": c.name, "arguments": c.arguments} for c in m.tool_calls)
        out["tool_calls"] = [
            {"type": "function", "id": c.id, "function": f} for c, f in zip(m.tool_calls, calls, strict=True)
        ]
    if m.tool_call_id:
        out["tool_call_id"] = m.tool_call_id
    return out


def _describe_tools(messages: list[Message], tools: Sequence[Tool]) -> list[Message]:
    listing = "\n".join(msgspec.json.encode(_function(t)).decode() for t in tools)
    text = f'To use a tool, answer with only {{"name": …, "arguments": {{…}}}}. Tools:\n{listing}'
    if messages and messages[0].role in ("system", "developer"):
        return [msgspec.structs.replace(messages[0], content=f"{messages[0].content}\n\n{text}"), *messages[1:]]
    return [Message(role="system", content=text), *messages]


def _refusal(status: int, body: bytes, given: str) -> AntiphonError:
    try:
        error = msgspec.json.decode(body)["error"]
        message, kind = str(error["message"]), str(error.get("type"))
    except (msgspec.DecodeError, KeyError, TypeError):
        message, kind, error = f"The engine answered {status}.", "", {}
    if kind == "exceed_context_size_error":
        window, prompt = error.get("n_ctx"), error.get("n_prompt_tokens")
        return ContextLengthExceeded(
            f"This model's maximum context length is {window} tokens; the prompt has {prompt}.", param=given
        )
    if status == 400:
        return InvalidRequest(message, param=given if "prompt" in message.lower() else None)
    return EngineFailed(message)
