"""For everyone: by keyboard alone, with a screen reader, on a phone, in both themes."""

import re
from typing import Any

import pytest
from playwright.async_api import Page, expect

from benchmarks.page_browser import AXE
from benchmarks.page_text import answer
from benchmarks.page_upstream import Script
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import DESKTOP, TOUCH, NewChat

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def violations(page: Page) -> list[str]:
    if await page.evaluate("typeof window.axe") == "undefined":
        await page.add_script_tag(path=AXE)
    found = await page.evaluate("async () => (await axe.run()).violations")
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in found if v["impact"] in ("critical", "serious")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("device", [{"viewport": DESKTOP}, TOUCH], ids=["desktop", "phone"])
async def test_axe_finds_nothing_grave(new_chat: NewChat, script: Script, scheme: str, device: dict[str, Any]) -> None:
    script.answers["script"], script.interval = answer(600), 0
    # axe is a script that the page's policy would refuse.
    chat = await new_chat(bypass_csp=True, color_scheme=scheme, **device)
    assert await violations(chat.page) == []
    await chat.composer.fill("Show me everything.")
    await chat.send_button.click()
    await expect(chat.prose().locator("math").first).to_be_attached()
    await expect(chat.prose().locator(".hljs-keyword").first).to_be_attached()
    await chat.finished()
    assert await violations(chat.page) == []
    await chat.page.get_by_role("button", name="Instructions and parameters").click()
    await expect(chat.page.get_by_label("Temperature")).to_be_visible()
    assert await violations(chat.page) == []
    await chat.page.keyboard.press("Escape")
    await chat.page.keyboard.press("Control+k")
    await expect(chat.list.get_by_role("link").first).to_be_visible()
    assert await violations(chat.page) == []
    await chat.page.get_by_role("button", name="Account:").click()
    await chat.page.get_by_role("button", name="Sign out").click()
    await expect(chat.page.get_by_label("API key")).to_be_visible()
    assert await violations(chat.page) == []


async def test_the_keyboard_alone_does_it_all(chat: ChatPage, script: Script) -> None:
    keyboard = chat.page.keyboard
    await expect(chat.composer).to_be_focused()
    await keyboard.type("First line")
    await keyboard.press("Shift+Enter")
    await keyboard.type("second line")
    await keyboard.press("Enter")
    await chat.finished()
    await expect(chat.questions).to_contain_text("First line\nsecond line", use_inner_text=True)
    await expect(chat.composer).to_be_focused()
    await keyboard.press("ArrowUp")
    await expect(chat.page.get_by_role("textbox", name="Edit your message")).to_be_focused()
    await keyboard.press("Escape")
    await expect(chat.questions.get_by_role("button", name="Edit message")).to_be_focused()
    await keyboard.press("Tab")
    await expect(chat.tool("Copy answer")).to_be_focused()
    await keyboard.press("Tab")
    await keyboard.press("Enter")
    await expect(chat.answers).to_contain_text("2/2")
    await chat.finished()
    await keyboard.press("Control+Shift+O")
    await expect(chat.composer).to_be_focused()
    await keyboard.press("Control+k")
    await keyboard.type("second line")
    await expect(chat.list.get_by_role("link")).to_have_count(1)
    await keyboard.press("Tab")
    await keyboard.press("Enter")
    await expect(chat.answers).to_have_count(1)
    await keyboard.press("Control+/")
    await expect(chat.page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await keyboard.press("Escape")
    await expect(chat.page.get_by_role("dialog")).to_have_count(0)


async def test_the_first_tab_leads_past_the_list(new_chat: NewChat, script: Script) -> None:
    chat = await new_chat(**TOUCH)  # where the composer does not take the focus by itself
    await chat.page.keyboard.press("Tab")
    skip = chat.page.get_by_role("link", name="Skip to the message field")
    await expect(skip).to_be_focused()
    await chat.page.keyboard.press("Enter")
    await expect(chat.composer).to_be_focused()


async def test_a_screen_reader_hears_the_answer_once_and_whole(chat: ChatPage, script: Script) -> None:
    said = chat.page.locator("[role=status][aria-live=polite]")
    script.answers["script"] = "One plain sentence. " * 5
    await chat.ask("Speak.")
    await expect(said).to_have_text("Answering")
    await expect(chat.log).to_have_attribute("aria-live", "off")
    await expect(said).to_have_text(re.compile("^Answer: One plain sentence."))


async def test_on_a_phone_the_list_is_a_drawer(new_chat: NewChat, script: Script) -> None:
    chat = await new_chat(**TOUCH)
    await chat.composer.fill("Asked on a phone.")
    await chat.send_button.click()
    await chat.finished()
    await chat.page.get_by_role("button", name="New chat").click()
    await expect(chat.list).to_have_count(0)
    await chat.page.get_by_role("button", name="Show conversations").click()
    await chat.list.get_by_role("link", name="Asked on a phone.").click()
    await expect(chat.list).to_have_count(0)
    await expect(chat.questions).to_contain_text("Asked on a phone.")
    await chat.page.get_by_role("button", name="Show conversations").click()
    await chat.page.keyboard.press("Escape")
    await expect(chat.list).to_have_count(0)
    await expect(chat.page.get_by_role("button", name="Show conversations")).to_be_focused()


async def test_on_a_phone_enter_is_a_new_line_and_targets_are_large(new_chat: NewChat, script: Script) -> None:
    chat = await new_chat(**TOUCH)
    await chat.composer.click()
    await chat.page.keyboard.type("one")
    await chat.page.keyboard.press("Enter")
    await chat.page.keyboard.type("two")
    await expect(chat.composer).to_have_value("one\ntwo")
    await chat.send_button.click()
    await chat.finished()
    boxes = await chat.page.locator("button:visible").evaluate_all(
        "all => all.map(b => [b.ariaLabel || b.innerText, b.offsetWidth, b.offsetHeight])"
    )
    assert [box for box in boxes if min(box[1:]) < 44] == []


@pytest.mark.parametrize("device", [{"viewport": DESKTOP}, TOUCH], ids=["desktop", "phone"])
async def test_nothing_makes_the_page_scroll_sideways(
    new_chat: NewChat, script: Script, device: dict[str, Any]
) -> None:
    wide = "| " + " | ".join(f"column number {n}" for n in range(12)) + " |\n|" + " --- |" * 12 + "\n"
    script.answers["script"] = f"{'long' * 60}\n\n{wide}\n\n```\n{'x = 1; ' * 60}\n```\n\n$$\n{'a + ' * 60}a\n$$\n"
    script.interval = 0
    chat = await new_chat(**device)
    await chat.composer.fill("wide" * 60)
    await chat.send_button.click()
    await expect(chat.prose().locator("math")).to_be_attached()
    await chat.finished()
    sideways = (
        "[document.documentElement, document.querySelector('[role=log]')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert await chat.page.evaluate(sideways) == [0, 0]
