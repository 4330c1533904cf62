"""An installation with people in it, and the web app in a browser of each."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from benchmarks.page_upstream import Script
from tests.e2e.conftest import DESKTOP, MODELS
from tests.support.server import Server

PRICES = """
currency = "USD"
[prices.chat."*"]
prompt = 1_000_000_000
output = 2_000_000_000
"""
"""A tenth of a cent for each token of a prompt."""

Visit = Callable[..., Awaitable[Page]]


@dataclass(frozen=True)
class Person:
    name: str
    email: str
    password: str = "a donkey, two staples"


OLIVE = Person("Olive Owner", "olive@house.example")


class House:
    """The people of a server, through the same routes that the page uses."""

    def __init__(self, server: Server):
        self.server = server

    @contextmanager
    def client(self, person: Person | None = None) -> Iterator[httpx.Client]:
        with httpx.Client(base_url=self.server.url, headers={"origin": self.server.url}, timeout=60) as http:
            if person:
                self._ok(http.post("/api/session", json={"email": person.email, "password": person.password}))
            yield http

    def settle(self) -> None:
        """The owner of the machine makes the first account."""
        with self.client() as http:
            http.get(self.server.signin)
            self._ok(http.post("/api/signup", json=vars(OLIVE)))

    def invite(self, **fields: Any) -> str:
        """The path of its link."""
        with self.client(OLIVE) as http:
            return str(self._ok(http.post("/api/organization/invites", json=fields)).json()["path"])

    def join(self, name: str, role: str = "member") -> Person:
        person = Person(name, f"{name.split()[0].lower()}@house.example")
        token = self.invite(role=role).rpartition("/")[2]
        with self.client() as http:
            self._ok(http.post("/api/signup", json=vars(person) | {"invite": token}))
        return person

    def guess(self, person: Person) -> None:
        """Wrong passwords, until no more are taken."""
        with self.client() as http:
            given = {"email": person.email, "password": "a guess at it"}
            while http.post("/api/session", json=given).status_code != 429:
                pass

    def exhaust(self, person: Person, model: str) -> None:
        """Requests with a key of that person's, until a limit is reached."""
        with self.client(person) as http:
            key = self._ok(http.post("/api/organization/api_keys", json={"name": "Busy"})).json()["secret"]
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        with httpx.Client(base_url=self.server.url, headers={"authorization": f"Bearer {key}"}, timeout=60) as http:
            while http.post("/v1/chat/completions", json=body).status_code != 429:
                pass

    @staticmethod
    def _ok(answer: httpx.Response) -> httpx.Response:
        assert answer.is_success, answer.text
        return answer


@contextmanager
def housed(home: Path, script: Script, **settings: str) -> Iterator[House]:
    """A server with the scripted model and prices, and Olive, its owner."""
    prices = home / "prices.toml"
    prices.write_text(PRICES)
    named = {"UPSTREAM_URL": script.url, "EMBEDDING_MODEL": "none", "PRICES": str(prices)}
    with Server(home, model=",".join(MODELS), **(named | settings)) as server:
        house = House(server)
        house.settle()
        yield house


@asynccontextmanager
async def visits(browser: Browser) -> AsyncIterator[Visit]:
    """`await visit(house, person, "/settings/keys")`: the page as that person has it, in a browser of their own."""
    async with AsyncExitStack() as stack:

        async def visit(house: House, person: Person | None = OLIVE, path: str = "/", **options: Any) -> Page:
            context = await browser.new_context(**({"base_url": house.server.url, "viewport": DESKTOP} | options))
            stack.push_async_callback(context.close)
            context.set_default_timeout(15_000)
            if person:
                given = {"email": person.email, "password": person.password}
                signed = await context.request.post("/api/session", data=given)
                assert signed.status == 204, await signed.text()
            page = await context.new_page()
            await page.goto(path)
            return page

        yield visit


async def sign_in(page: Page, person: Person, password: str | None = None) -> None:
    await page.get_by_label("E-mail", exact=True).fill(person.email)
    await page.get_by_label("Password", exact=True).fill(password or person.password)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def open_menu(page: Page) -> Locator:
    button = page.get_by_role("button", name="Account:")
    await button.click()
    return button


async def shows_chat(page: Page) -> None:
    await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()


async def ended(page: Page) -> None:
    """Until the server knows the page's session no more: other processes may remember it for some seconds."""
    for _ in range(100):
        if (await page.request.get("/api/session")).status == 401:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("The session went on.")


def title(page: Page, name: str) -> Locator:
    return page.get_by_role("heading", level=1, name=name, exact=True)


def row(page: Page, text: str) -> Locator:
    return page.get_by_role("row").filter(has_text=text)


@pytest.fixture(scope="module")
def house(upstream: Script, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with housed(tmp_path_factory.mktemp("house"), upstream) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Visit]:
    async with visits(browser) as made:
        yield made
