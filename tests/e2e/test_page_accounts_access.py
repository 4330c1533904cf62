"""The account pages for everyone: by axe, on a phone, in both themes, and under a limit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from benchmarks.page_browser import AXE
from benchmarks.page_upstream import Script
from tests.e2e.accounts_page import OLIVE, House, Visit, housed, open_menu, shows_chat, title, visit
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import DESKTOP, TOUCH

__all__ = ["visit"]

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

TABS = {
    "account": "Account", "keys": "API keys", "members": "Members", "projects": "Projects", "usage": "Usage",
    "audit": "Audit log",
}  # fmt: skip
DEVICES = pytest.mark.parametrize("device", [{"viewport": DESKTOP}, TOUCH], ids=["desktop", "phone"])
TIERS = """
[enterprise]
[enterprise.limits.chat]
user = { requests_per_minute = 6 }
"""


@pytest.fixture(scope="module")
def house(upstream: Script, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with housed(tmp_path_factory.mktemp("house"), upstream) as made:
        made.join("Mia Member")
        made.invite(email="invited@house.example")
        with made.client(OLIVE) as http:
            for name in ("Laptop", "Server"):
                assert http.post("/api/organization/api_keys", json={"name": name}).is_success
            assert http.post("/api/organization/projects", json={"name": "Research"}).is_success
        yield made


async def flaws(page: Page) -> list[str]:
    """What axe finds grave, what is small under a finger, and what reaches out of the page."""
    if await page.evaluate("typeof window.axe") == "undefined":
        await page.add_script_tag(path=AXE)
    found = await page.evaluate("async () => (await axe.run()).violations")
    grave = [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in ("critical", "serious")]
    sideways = await page.evaluate(
        "[...document.querySelectorAll('html, main, nav, dialog')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.tagName)"
    )
    small = await page.evaluate(
        "!matchMedia('(pointer: coarse)').matches ? [] : [...document.querySelectorAll('button, a, select, input.field')]"
        ".filter(e => e.checkVisibility({visibilityProperty: true}) && Math.min(e.offsetWidth, e.offsetHeight) < 44)"
        ".map(e => `${e.ariaLabel || e.innerText} is ${e.offsetWidth} × ${e.offsetHeight}`)"
    )
    return [*grave, *sideways, *small]


@DEVICES
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_of_the_settings_has_a_grave_flaw(
    house: House, visit: Visit, script: Script, scheme: str, device: dict[str, Any]
) -> None:
    # axe is a script that the page's policy would refuse.
    page = await visit(house, OLIVE, bypass_csp=True, color_scheme=scheme, **device)
    await ChatPage(page).composer.fill("Something to count.")
    await ChatPage(page).send_button.click()
    await ChatPage(page).finished()
    for tab, name in TABS.items():
        await page.goto(f"/settings/{tab}")
        await expect(title(page, name)).to_be_visible()
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        assert await flaws(page) == [], tab
    await page.goto("/settings/keys")
    await page.get_by_role("button", name="Revoke").first.click()
    assert await flaws(page) == []
    await page.get_by_role("button", name="Create key").click()
    await page.get_by_label("Choose…").check()
    assert await flaws(page) == []


@DEVICES
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_neither_sign_in_nor_menu_nor_invitation_has_a_grave_flaw(
    house: House, visit: Visit, scheme: str, device: dict[str, Any]
) -> None:
    page = await visit(house, None, bypass_csp=True, color_scheme=scheme, **device)
    await page.get_by_label("E-mail", exact=True).fill("nobody@house.example")
    await page.get_by_label("Password", exact=True).fill("not a password here")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_be_visible()
    assert await flaws(page) == []
    await page.goto(house.invite())
    await expect(page.get_by_label("Name", exact=True)).to_be_visible()
    assert await flaws(page) == []
    page = await visit(house, OLIVE, bypass_csp=True, color_scheme=scheme, **device)
    await shows_chat(page)
    if device is TOUCH:
        await page.get_by_role("button", name="Show conversations").click()
    await open_menu(page)
    assert await flaws(page) == []
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("button", name="Account:")).to_be_focused()


async def test_the_pages_obey_the_content_security_policy(house: House, visit: Visit) -> None:
    page = await visit(house, OLIVE)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    for tab, name in TABS.items():
        await page.goto(f"/settings/{tab}")
        await expect(title(page, name)).to_be_visible()
        await expect(page.get_by_text("Loading…")).to_have_count(0)
    assert said == []


async def test_a_limit_says_how_long_to_wait_and_waiting_helps(
    visit: Visit, upstream: Script, script: Script, tmp_path: Path
) -> None:
    tiers = tmp_path / "tiers.toml"
    tiers.write_text(TIERS)
    script.interval = 0
    with housed(tmp_path, upstream, TIERS=str(tiers)) as house:
        page = await visit(house, OLIVE)
        await shows_chat(page)
        house.exhaust(OLIVE, "script")
        chat = ChatPage(page)
        await chat.ask("One more.")
        await expect(page.get_by_role("alert")).to_contain_text("Try again in")
        retry = page.get_by_role("button", name="Retry")
        await expect(retry).to_be_disabled()
        await expect(retry).to_be_enabled(timeout=20_000)
        await retry.click()
        await chat.finished()
        await expect(page.get_by_role("alert")).to_have_count(0)
