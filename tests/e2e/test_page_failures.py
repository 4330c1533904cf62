"""When something dies: nothing that was shown or typed is lost, and the reason stands where it happened."""

import re

import pytest
from playwright.async_api import Route, expect

from benchmarks.page_upstream import Script
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import MakeServer, NewChat

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

COUNT = " ".join(str(n) for n in range(1, 200))


async def test_kill_9_keeps_the_text_and_continue_makes_it_whole(
    new_chat: NewChat, start_scripted: MakeServer, script: Script
) -> None:
    script.answers["script"] = COUNT
    server = start_scripted()
    chat = await new_chat(server)
    await chat.ask("Count for me.")
    await chat.writing(150)
    server.kill()
    server.end()
    await expect(chat.answers).to_contain_text("Interrupted")
    shown = await chat.text()
    assert len(shown) >= 150
    server.start()
    note = chat.answers.get_by_text(re.compile("^Interrupted. The server stopped"))
    await expect(note).to_be_visible(timeout=20_000)
    assert await chat.text() == shown
    await chat.tool("Continue").click()
    await expect(note).to_have_count(0)
    await chat.finished()
    assert await chat.text() == COUNT
    await chat.page.reload()
    await expect(chat.prose()).to_have_text(COUNT)


async def test_an_engine_that_breaks_off_says_so_in_its_answer_and_continue_works(
    chat: ChatPage, script: Script
) -> None:
    script.answers["script"] = "A sentence long enough to be cut in the middle."
    script.fails = True
    await chat.ask("Say it.")
    await expect(chat.answers).to_contain_text("Interrupted. The server of script stopped in the middle of its answer.")
    shown = await chat.text()
    assert script.answers["script"].startswith(shown)
    script.fails = False
    await chat.tool("Continue").click()
    await expect(chat.prose()).to_have_text("A sentence long enough to be cut in the middle.")
    await chat.finished()


async def test_an_engine_that_is_gone_is_an_error_in_its_answer_and_retry_works(chat: ChatPage, script: Script) -> None:
    script.refuses = True
    await chat.ask("Say it.")
    trouble = chat.answers.get_by_role("alert")
    await expect(trouble).to_contain_text("The server of script answered 500.")
    await expect(chat.page.get_by_role("dialog")).to_have_count(0)
    script.refuses = False
    await trouble.get_by_role("button", name="Retry").click()
    await expect(chat.prose()).to_have_text("One plain sentence.")
    await chat.finished()
    await expect(chat.page.get_by_role("alert")).to_have_count(0)


async def test_a_message_that_could_not_be_sent_survives_a_reload_and_is_sent_once(
    chat: ChatPage, script: Script
) -> None:
    await chat.ask_whole("First.")
    await chat.page.route("**/turns", lambda route: route.abort())
    await chat.ask("Second, into the void.")
    waiting = chat.page.get_by_role("article", name="You, not sent yet")
    await expect(waiting.get_by_role("alert")).to_contain_text("The server can't be reached.")
    await chat.page.reload()
    await expect(waiting).to_contain_text("Second, into the void.")
    await chat.page.unroute("**/turns")
    await waiting.get_by_role("button", name="Retry").click()
    await expect(chat.answers).to_have_count(2)
    await chat.finished()
    assert [m["content"] for m in await chat.saved() if m["role"] == "user"] == ["First.", "Second, into the void."]


async def test_a_message_taken_back_is_in_the_composer_and_the_conversation_in_view(
    chat: ChatPage, script: Script
) -> None:
    script.answers["script"] = "\n\n".join(f"Paragraph {n} of a long answer." for n in range(30))
    script.interval = 0
    await chat.ask_whole("First.")
    await chat.page.route("**/turns", lambda route: route.abort())
    await chat.ask("Second, into the void.")
    waiting = chat.page.get_by_role("article", name="You, not sent yet")
    await waiting.get_by_role("button", name="Edit").click()
    await expect(chat.composer).to_have_value("Second, into the void.")
    await expect(chat.composer).to_be_focused()
    await expect(waiting).to_have_count(0)
    await expect(chat.prose().get_by_text("Paragraph 29")).to_be_in_viewport()


async def test_a_lost_reply_does_not_send_a_message_twice(chat: ChatPage, script: Script) -> None:
    await chat.ask_whole("First.")

    async def swallow(route: Route) -> None:
        await route.fetch()
        await route.abort()

    await chat.page.route("**/turns", swallow, times=1)
    await chat.ask("Second.")
    waiting = chat.page.get_by_role("article", name="You, not sent yet")
    await waiting.get_by_role("button", name="Retry").click()
    await expect(chat.answers).to_have_count(2)
    await chat.finished()
    assert len(script.requests) == 2
    assert [m["content"] for m in await chat.saved() if m["role"] == "user"] == ["First.", "Second."]


async def test_what_was_typed_is_there_after_a_reload_in_each_conversation(chat: ChatPage) -> None:
    await chat.ask_whole("A conversation with a draft.")
    await chat.composer.fill("A draft for this conversation")
    await chat.page.keyboard.press("Control+Shift+O")
    await expect(chat.composer).to_have_value("")
    await chat.composer.fill("A draft for a new chat")
    await chat.page.reload()
    await expect(chat.composer).to_have_value("A draft for a new chat")
    await chat.page.go_back()
    await expect(chat.composer).to_have_value("A draft for this conversation")


async def test_a_conversation_that_is_gone_says_so(new_chat: NewChat, script: Script) -> None:
    chat = await new_chat(path="/c/conv_00000000000000000000000000000000")
    trouble = chat.page.get_by_role("main").get_by_role("alert")
    await expect(trouble).to_contain_text("It may have been deleted")
    await trouble.get_by_role("button", name="New chat").click()
    assert await chat.ask_whole("Somewhere else, then.") == "One plain sentence."
