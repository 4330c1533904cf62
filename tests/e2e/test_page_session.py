"""Signing in by link and by key, and what happens when the session ends under one's hands."""

import pytest
from playwright.async_api import Browser, expect

from benchmarks.page_upstream import Script
from tests.e2e.chat_page import ChatPage
from tests.support.server import Server

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_the_printed_link_signs_in_and_leaves_no_token_in_the_address(browser: Browser, product: Server) -> None:
    async with await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(product.signin)
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_focused()
        assert page.url == f"{product.url}/"
        [cookie] = await context.cookies()
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"


async def test_a_key_signs_in_and_a_wrong_one_is_refused_beside_the_field(browser: Browser, product: Server) -> None:
    async with await browser.new_context() as context:
        page = await context.new_page()
        await page.goto(product.url)
        key = page.get_by_label("API key")
        await expect(key).to_be_focused()
        await key.fill("sk-wrong")
        await key.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("Check the key")
        await key.fill(product.key)
        await key.press("Enter")
        await expect(page.get_by_role("textbox", name="Message", exact=True)).to_be_visible()


async def test_a_message_sent_after_the_session_has_ended_goes_out_after_the_sign_in(
    chat: ChatPage, product: Server, script: Script
) -> None:
    await chat.ask_whole("First.")
    await chat.page.context.clear_cookies()
    await chat.ask("Second, after the end of the session.")
    key = chat.page.get_by_label("API key")
    await key.fill(product.key)
    await key.press("Enter")
    await expect(chat.answers).to_have_count(2)
    await chat.finished()
    assert [m["content"] for m in await chat.saved() if m["role"] == "user"] == [
        "First.",
        "Second, after the end of the session.",
    ]


async def test_signing_out_ends_the_session_and_forgets_what_was_typed(chat: ChatPage) -> None:
    await chat.composer.fill("My secret draft")
    await chat.page.get_by_role("button", name="Account:").click()
    await chat.page.get_by_role("button", name="Sign out").click()
    await expect(chat.page.get_by_label("API key")).to_be_visible()
    assert "secret" not in await chat.page.evaluate("JSON.stringify(localStorage)")
    assert (await chat.page.request.get("/api/session")).status == 401
