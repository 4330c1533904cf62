"""The product with its engine in another process: `python -m benchmarks.ledger_gateway ENGINE_URL PORT`."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvloop
from rich.console import Console

from deploy import embedded
from deploy.server import serve
from deploy.settings import ServeSettings
from inference.client import EngineClient
from services.common.http import Peer
from services.common.ports import Engine


@asynccontextmanager
async def _remote(settings: ServeSettings, console: Console) -> AsyncIterator[dict[str, Engine]]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield {"simulated": EngineClient(Peer(sys.argv[1], session))}


if __name__ == "__main__":
    embedded.running_engines = _remote
    uvloop.run(serve(ServeSettings(port=int(sys.argv[2]), model="simulated")))
