"""Chromium, the product it talks to, and a scripted model behind that. All tests here share one event loop."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from benchmarks.page_browser import ARGS
from benchmarks.page_upstream import Script, scripted
from benchmarks.processes import free_port
from tests.e2e.chat_page import ChatPage
from tests.support.server import Server

MODELS = ("script", "other")
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
TOUCH = {"viewport": PHONE, "has_touch": True, "is_mobile": True}

MakeServer = Callable[..., Server]
NewChat = Callable[..., Awaitable[ChatPage]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "These tests need Chromium: run `make machine`."
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(executable_path=path, args=ARGS)
        yield started
        await started.close()


@pytest.fixture(scope="session")
def upstream() -> Iterator[Script]:
    with scripted(dict.fromkeys(MODELS, "")) as script:
        yield script


@pytest.fixture(scope="session")
def product(upstream: Script, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the scripted model behind it: it says what a test wants."""
    settings = {"UPSTREAM_URL": upstream.url, "EMBEDDING_MODEL": "none"}
    with Server(tmp_path_factory.mktemp("page"), model=",".join(MODELS), **settings) as started:
        yield started


@pytest.fixture
def script(upstream: Script) -> Script:
    """The scripted model, as new: at 50 tokens/s, without a memory."""
    upstream.interval, upstream.fails, upstream.refuses = 0.02, False, False
    upstream.requests.clear()
    upstream.answers.update(dict.fromkeys(MODELS, "One plain sentence."))
    return upstream


@pytest.fixture
def start_scripted(script: Script, start_server: MakeServer) -> MakeServer:
    """A product of the test's own, to be killed."""
    port = str(free_port())  # its own also after a restart
    return lambda: start_server("--port", port, model="script", UPSTREAM_URL=script.url)


@pytest_asyncio.fixture(loop_scope="session")
async def new_chat(browser: Browser, product: Server) -> AsyncIterator[NewChat]:
    """`await new_chat()`: the page, signed in, in a browser of its own. Options are those of a Playwright context."""
    async with AsyncExitStack() as stack:

        async def make(server: Server = product, path: str = "/", **options: Any) -> ChatPage:
            context = await browser.new_context(**({"base_url": server.url, "viewport": DESKTOP} | options))
            stack.push_async_callback(context.close)
            context.set_default_timeout(15_000)
            signed = await context.request.post("/api/session", data={"key": server.key})
            assert signed.status == 204, await signed.text()
            chat = ChatPage(await context.new_page())
            await chat.open(path)
            return chat

        yield make


@pytest_asyncio.fixture(loop_scope="session")
async def chat(new_chat: NewChat, script: Script) -> ChatPage:
    """A desktop's page on the scripted model."""
    return await new_chat()
