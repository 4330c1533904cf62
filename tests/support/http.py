"""A real HTTP server on loopback."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves Ctrl-C to pytest."""
        yield


@asynccontextmanager
async def served(app: Starlette) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """The app on a free loopback port: its base URL, and a client's session."""
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it, each answer takes 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # so that a call made before the server's first step waits instead of failing
        server = _Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with aiohttp.ClientSession() as session:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}", session
        finally:
            server.should_exit = True
            await running
