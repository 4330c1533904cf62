"""Engines to put to the test: simulated, real, and behind the two kinds of wire."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from inference.api import create_app
from inference.client import EngineClient
from inference.engines.fan_out import FanOut
from inference.engines.llama_cpp import LlamaCppEngine
from inference.engines.metered import Metered
from inference.engines.openai import OpenAIEngine
from inference.engines.simulated import SimulatedEngine
from inference.engines.tool_calling import ToolCalling
from inference.models import ensure, resolve
from inference.settings import LlamaCppSettings
from inference.supervisor import Supervisor
from services.common import messages as m
from services.common.errors import AntiphonError
from services.common.http import Peer
from services.common.lean_http import LeanClient
from services.common.ports import Engine
from tests.support.http import served

MODEL = "smollm2-135m-instruct"
WINDOW = 1024
_PARENT = """
import asyncio, json, sys
from pathlib import Path
from inference.supervisor import Supervisor

async def main():
    child = Supervisor("child", json.loads(sys.argv[1]), Path(sys.argv[2]), {"LLAMA_SERVER_KEY": "a key for tests"})
    await child.start(60)
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
NOWHERE = "http://127.0.0.1:9"
"""Nothing listens here (the discard port)."""


@dataclass(frozen=True)
class Subject:
    """An engine, and what may be asked of it beyond the port."""

    engine: Engine
    running: Callable[[], Awaitable[int]]
    """Generations in the engine underneath, by its own count, whatever this end of the wire believes."""
    dead: Engine | None = None
    """One of the same kind whose process, or server, is gone; None: it lives where we live."""
    exact_tokens: bool = True
    """Its deltas carry the true number of their tokens, and it tokenises. OpenAI's chunks tell only the total."""
    forces_tools: bool = True
    hears_us_while_reading: bool = True
    """It notices during the prefill that nobody waits; llama.cpp's OpenAI-compatible API writes nothing until later."""
    checks_schemas: bool = True
    """It finds out whether a schema can be enforced; llama.cpp's server as an upstream enforces what it can."""


@dataclass
class Answer:
    """A whole stream, sorted by choice."""

    batches: list[Sequence[m.Event]] = field(default_factory=list)
    prefilled: list[int] = field(default_factory=list)
    """What the engine has told of its prefill, which only the meter looks at."""

    def take(self, batch: Sequence[m.Event]) -> None:
        self.prefilled += [e.tokens for e in batch if isinstance(e, m.Prefilled)]
        if said := [e for e in batch if not isinstance(e, m.Prefilled)]:
            self.batches.append(said)

    @property
    def events(self) -> list[m.Event]:
        return [event for batch in self.batches for event in batch]

    def deltas(self, choice: int = 0) -> list[m.TextDelta]:
        return [e for e in self.events if isinstance(e, m.TextDelta) and e.index == choice]

    def text(self, choice: int = 0) -> str:
        return "".join(e.text for e in self.deltas(choice))

    def reasons(self) -> dict[int, str]:
        return {e.index: e.reason for e in self.events if isinstance(e, m.Finished)}

    def calls(self, choice: int = 0) -> list[m.ToolCall]:
        calls: dict[int, list[m.ToolCallDelta]] = {}
        for e in self.events:
            if isinstance(e, m.ToolCallDelta) and e.index == choice:
                calls.setdefault(e.call, []).append(e)
        return [m.ToolCall(d[0].id or "", d[0].name or "", "".join(x.arguments for x in d)) for d in calls.values()]

    def logprobs(self) -> list[m.TokenLogprob]:
        return [p for delta in self.deltas() for p in delta.logprobs]

    def tokens(self) -> int:
        return sum(e.tokens for e in self.events if isinstance(e, m.TextDelta | m.ToolCallDelta))

    def usage(self) -> m.Usage:
        last = self.events[-1]
        assert isinstance(last, m.Usage)
        return last


def assert_whole(answer: Answer, n: int = 1) -> None:
    """Deltas, then one `Finished` per choice, then exactly one `Usage`, last."""
    finished: set[int] = set()
    for event in answer.events[:-1]:
        assert not isinstance(event, m.Usage)
        assert event.index not in finished
        if isinstance(event, m.Finished):
            finished.add(event.index)
    assert finished == set(range(n))
    assert answer.usage().completion_tokens > 0
    assert all(answer.batches), "an empty batch is a system call for nothing"


async def collect(engine: Engine, request: m.GenerationRequest) -> Answer:
    answer = Answer()
    async with aclosing(engine.generate(request)) as stream:
        async for batch in stream:
            answer.take(batch)
    return answer


def ask(text: str = "Tell me about the sea.", **fields: object) -> m.GenerationRequest:
    """A request of one user message, or of `prompt` or `messages` where they are given; `sampling` fields by name."""
    names = m.Sampling.__struct_fields__
    sampling = m.Sampling(**{name: fields.pop(name) for name in list(fields) if name in names})  # type: ignore[arg-type]
    if not fields.keys() & {"prompt", "messages"}:
        fields["messages"] = (m.Message(role="user", content=text),)
    return m.GenerationRequest(model=MODEL, sampling=sampling, **fields)  # type: ignore[arg-type]


async def broken(engine: Engine, request: m.GenerationRequest) -> tuple[Answer, AntiphonError]:
    """What came of a stream that fails, and how it failed. A failure never looks like an end."""
    answer = Answer()
    try:
        async for batch in engine.generate(request):
            answer.take(batch)
    except AntiphonError as e:
        assert not any(isinstance(event, m.Usage) for event in answer.events)
        return answer, e
    raise AssertionError(f"the stream came to an end: {answer.events}")


def alive(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pid: int) -> None:
    while alive(pid):
        await asyncio.sleep(0.02)


async def orphaned(command: Sequence[str], log_file: Path) -> int:
    """The pid of a ready child of a supervisor whose own process has just been killed."""
    code = [sys.executable, "-c", _PARENT, json.dumps(command), str(log_file)]
    parent = await asyncio.create_subprocess_exec(*code, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    await parent.wait()
    return pid


async def until_idle(running: Callable[[], Awaitable[int]]) -> None:
    while await running():
        await asyncio.sleep(0.01)


@asynccontextmanager
async def over_http(engine: Engine) -> AsyncIterator[EngineClient]:
    async with served(create_app(engine)) as (url, session):
        while True:
            with suppress(aiohttp.ClientConnectorError):
                await session.get(url)
                break
        yield EngineClient(Peer(url, session))


def simulated_stack(inner: SimulatedEngine) -> Engine:
    return FanOut(ToolCalling(Metered(inner)))


@asynccontextmanager
async def simulated_subject() -> AsyncIterator[Subject]:
    inner = SimulatedEngine(MODEL, itl=0.002, context_window=WINDOW)
    yield Subject(simulated_stack(inner), _count(inner))


@asynccontextmanager
async def http_subject() -> AsyncIterator[Subject]:
    inner = SimulatedEngine(MODEL, itl=0.002, context_window=WINDOW)
    async with over_http(simulated_stack(inner)) as engine, aiohttp.ClientSession() as session:
        yield Subject(engine, _count(inner), EngineClient(Peer(NOWHERE, session)))


def model_path() -> Path:
    """The weights, from the cache; pulled first where they are not there yet."""
    return next(iter(ensure(resolve(MODEL)).values()))


def llama_command() -> list[str]:
    options = LlamaCppSettings(context_window=WINDOW).model_dump() | {"model": str(model_path())}
    return [sys.executable, "-m", "inference.engines.llama_server", json.dumps(options)]


def new_llama(log_file: Path, session: aiohttp.ClientSession) -> LlamaCppEngine:
    settings = LlamaCppSettings(context_window=WINDOW)
    return LlamaCppEngine(MODEL, model_path(), settings, log_file, session, context_length=WINDOW)


@asynccontextmanager
async def llama_engine(log_file: Path) -> AsyncIterator[LlamaCppEngine]:
    async with aiohttp.ClientSession() as session:
        engine = new_llama(log_file, session)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()


@asynccontextmanager
async def llama_subject(folder: Path) -> AsyncIterator[Subject]:
    async with aiohttp.ClientSession() as session, llama_engine(folder / "llama.log") as inner:
        dead = new_llama(folder / "dead.log", session)

        async def running() -> int:
            return (await inner.load()).running

        yield Subject(FanOut(ToolCalling(Metered(inner))), running, FanOut(ToolCalling(Metered(dead))))


@asynccontextmanager
async def openai_subject(folder: Path) -> AsyncIterator[Subject]:
    """llama.cpp's server again, but asked through its OpenAI-compatible API only."""
    upstream = Supervisor("upstream", llama_command(), folder / "upstream.log", {"LLAMA_SERVER_KEY": "a key for tests"})
    await upstream.start(60)
    try:
        async with aiohttp.ClientSession() as session:
            url, key = await upstream.url(), "a key for tests"
            engine = OpenAIEngine(MODEL, f"{url}/v1", session, LeanClient(), api_key=key, context_window=WINDOW)

            async def running() -> int:
                async with session.get(f"{url}/slots", headers={"Authorization": f"Bearer {key}"}) as response:
                    return sum(slot["is_processing"] for slot in await response.json())

            yield Subject(
                Metered(engine), running, Metered(OpenAIEngine(MODEL, f"{NOWHERE}/v1", session, LeanClient())),
                exact_tokens=False, forces_tools=False, hears_us_while_reading=False, checks_schemas=False,
            )  # fmt: skip
    finally:
        await upstream.stop()


def _count(engine: SimulatedEngine) -> Callable[[], Awaitable[int]]:
    async def running() -> int:
        return engine.running

    return running
