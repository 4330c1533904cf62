"""Which engine serves which model, from the names in the settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from rich.console import Console

from deploy.settings import ServeSettings
from inference.engines.fan_out import FanOut
from inference.engines.llama_cpp import LlamaCppEngine
from inference.engines.metered import Metered
from inference.engines.openai import OpenAIEngine
from inference.engines.simulated import SimulatedEngine
from inference.engines.tool_calling import ToolCalling
from inference.models import Model, ensure, load_catalog, resolve
from inference.models.progress import shown
from inference.settings import LlamaCppSettings
from services.common.errors import InvalidRequest
from services.common.lean_http import LeanClient
from services.common.messages import GenerationRequest, Message, Sampling
from services.common.ports import Engine

SIMULATED = "simulated"


@asynccontextmanager
async def running_engines(settings: ServeSettings, console: Console) -> AsyncIterator[dict[str, Engine]]:
    """Engines by model name, started and warm; stopped at the end. The first is the default."""
    names = [n.strip() for n in settings.model.split(",") if n.strip()] or [load_catalog().default]
    engines: dict[str, Engine] = {}
    local: list[LlamaCppEngine] = []
    client = LeanClient()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        try:
            for name in names:
                model, engine = await _make(name, settings, session, client, console, local)
                engines[model] = engine
            await _warm_up(engines, console)
            yield engines
        finally:
            client.close()
            await asyncio.gather(*(engine.stop() for engine in local))


async def _make(
    name: str,
    settings: ServeSettings,
    session: aiohttp.ClientSession,
    client: LeanClient,
    console: Console,
    local: list[LlamaCppEngine],
) -> tuple[str, Engine]:
    if settings.upstream_url:
        key = settings.upstream_api_key.get_secret_value() if settings.upstream_api_key else None
        return name, Metered(OpenAIEngine(name, settings.upstream_url, session, client, api_key=key))
    if name == SIMULATED:
        return name, FanOut(ToolCalling(Metered(SimulatedEngine(ttft=0.05, itl=0.02))))
    model = resolve(name)
    if model.kind != "chat":
        raise InvalidRequest(f"{model.name} is an embedding model; MODEL names models to chat with.")
    path = (await pulled(model, console))[model.files[0].name]
    with path.open("rb") as weights:
        if weights.read(4) != b"GGUF":
            raise InvalidRequest(f"{path} is not a GGUF file, which the embedded engine needs.")
    console.print(f"Starting the engine for {model.name} …")
    engine = LlamaCppEngine(
        model.name, path, LlamaCppSettings(), settings.home / "logs" / f"{model.name}.log", session,
        model.context_length,
    )  # fmt: skip
    local.append(engine)
    await engine.start()
    return model.name, FanOut(ToolCalling(Metered(engine)))


async def pulled(model: Model, console: Console) -> dict[str, Path]:
    """The model's files by name, fetched with progress where they are missing. Errors: `ModelUnavailable`."""
    with shown(console) as progress:
        return await asyncio.to_thread(ensure, model, progress)


async def _warm_up(engines: dict[str, Engine], console: Console) -> None:
    """One token each: the first one pages the weights in, and shows that the engine works."""
    for name, engine in engines.items():
        console.print(f"Warming up {name} …")
        question = (Message(role="user", content="Hello"),)
        request = GenerationRequest(model=name, messages=question, sampling=Sampling(max_tokens=1))
        async for _ in engine.generate(request):
            pass
