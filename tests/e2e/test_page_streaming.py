"""An answer on its way: streamed, saved, picked up again, stopped, written anew."""

import re
from typing import Any

import pytest
from playwright.async_api import Route, expect

from benchmarks.page_upstream import Script
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import DESKTOP, TOUCH, NewChat
from tests.support.server import Server, until

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

COUNT = " ".join(str(n) for n in range(1, 120))
"""Any token lost or repeated shows."""


@pytest.mark.parametrize("device", [{"viewport": DESKTOP}, TOUCH], ids=["desktop", "phone"])
async def test_a_message_streams_and_is_there_after_a_reload(
    new_chat: NewChat, script: Script, device: dict[str, Any]
) -> None:
    script.answers["script"] = COUNT
    chat = await new_chat(**device)
    await chat.composer.fill("Count for me, please.")
    await chat.send_button.click()
    await chat.writing()
    early = await chat.text()
    await chat.finished()
    assert COUNT.startswith(early)
    assert len(early) < len(COUNT)
    assert await chat.text() == COUNT
    await expect(chat.answers).to_contain_text(re.compile(r"\d+ tokens/s · first token"))
    await expect(chat.page).to_have_title("Count for me, please. · Antiphon")
    await chat.page.reload()
    await expect(chat.prose()).to_have_text(COUNT)
    await expect(chat.questions).to_contain_text("Count for me, please.")
    assert len(script.requests) == 1


async def test_a_reload_in_the_middle_goes_on_where_it_was(chat: ChatPage, script: Script) -> None:
    script.answers["script"] = COUNT
    await chat.ask("Count for me.")
    await chat.writing(100)
    shown = await chat.text()
    await chat.page.reload()
    await chat.writing(len(shown))
    assert COUNT.startswith(await chat.text())
    await chat.finished()
    assert await chat.text() == COUNT
    assert (await chat.saved())[-1]["content"] == COUNT
    assert len(script.requests) == 1


async def test_two_tabs_of_one_conversation_both_stream(chat: ChatPage, script: Script) -> None:
    script.answers["script"] = COUNT
    await chat.ask("Count for both.")
    await chat.writing()
    other = ChatPage(await chat.page.context.new_page())
    await other.open(chat.page.url)
    await other.writing()
    await other.finished()
    await chat.page.bring_to_front()
    await chat.finished()
    assert await chat.text() == await other.text() == COUNT


@pytest.mark.parametrize("how", ["button", "Escape"])
async def test_stop_ends_the_engine_and_the_page_says_so(
    chat: ChatPage, product: Server, script: Script, how: str
) -> None:
    script.answers["script"] = COUNT * 3
    await chat.ask("Count on.")
    await chat.writing()
    place = await chat.stop_button.bounding_box()
    if how == "button":
        await chat.stop_button.click()
    else:
        await chat.page.keyboard.press("Escape")
    until(lambda: script.left, 1, "the end of the upstream call")
    assert product.running() == 0
    await expect(chat.answers).to_contain_text("You stopped this answer.")
    assert await chat.send_button.bounding_box() == place, "nothing slides under the pointer"
    [_, answer] = await chat.saved()
    assert answer["status"] == "stopped"
    assert answer["content"]
    assert (await chat.text()).strip() == answer["content"].strip()
    script.left.clear()


async def test_continue_goes_on_with_a_stopped_answer(chat: ChatPage, script: Script) -> None:
    script.answers["script"] = COUNT
    await chat.ask("Count on.")
    await chat.writing()
    await chat.stop_button.click()
    await chat.tool("Continue").click()
    await expect(chat.stop_button).to_be_visible()
    await chat.finished()
    assert await chat.text() == COUNT
    script.left.clear()


async def test_another_answer_stands_beside_the_first(chat: ChatPage, script: Script) -> None:
    script.answers["script"] = "The first answer."
    await chat.ask_whole("Answer twice.")
    script.answers["script"] = "The second answer."
    await chat.tool("Write another answer").click()
    await expect(chat.answers).to_contain_text("2/2")
    await expect(chat.prose()).to_have_text("The second answer.")
    await chat.tool("Previous version").click()
    await expect(chat.prose()).to_have_text("The first answer.")
    await expect(chat.answers).to_contain_text("1/2")
    await chat.page.reload()
    await expect(chat.prose()).to_have_text("The first answer.")


async def test_the_chosen_branch_survives_a_reload_that_overtakes_it(chat: ChatPage, script: Script) -> None:
    async def hold(route: Route) -> None:
        await (route.abort() if route.request.method == "PATCH" else route.continue_())

    script.answers["script"] = "The first answer."
    await chat.ask_whole("Answer twice.")
    script.answers["script"] = "The second answer."
    await chat.tool("Write another answer").click()
    await expect(chat.prose()).to_have_text("The second answer.")
    await chat.finished()
    await chat.page.route("**/api/conversations/*", hold)
    await chat.tool("Previous version").click()
    await chat.page.reload()
    await expect(chat.prose()).to_have_text("The first answer.")
    await chat.page.unroute("**/api/conversations/*")
    async with chat.page.expect_request(lambda r: r.method == "PATCH"):
        await chat.page.reload()
    await expect(chat.prose()).to_have_text("The first answer.")


async def test_an_edited_message_opens_a_branch_and_keeps_the_old_one(chat: ChatPage, script: Script) -> None:
    await chat.ask_whole("A question with a typo.")
    script.answers["script"] = "The answer to the better question."
    await chat.questions.hover()
    await chat.questions.get_by_role("button", name="Edit message").click()
    editor = chat.page.get_by_role("textbox", name="Edit your message")
    await expect(editor).to_have_value("A question with a typo.")
    await editor.fill("A better question.")
    await editor.press("Enter")
    await expect(chat.prose()).to_have_text("The answer to the better question.")
    await chat.finished()
    await expect(chat.questions).to_contain_text("2/2")
    assert [m["content"] for m in script.requests[-1]["messages"] if m["role"] == "user"] == ["A better question."]
    await chat.questions.get_by_role("button", name="Previous version").click()
    await expect(chat.questions).to_contain_text("A question with a typo.")
    await expect(chat.prose()).to_have_text("One plain sentence.")


async def test_the_reader_is_not_moved_while_an_answer_grows(chat: ChatPage, script: Script) -> None:
    script.answers["script"] = "\n\n".join(f"Paragraph {n} of a long answer." for n in range(40))
    await chat.ask("Write much.")
    await chat.writing(300)
    top = "() => document.querySelector('[role=log]').scrollTop"
    before = await chat.page.evaluate(top)
    question = await chat.questions.bounding_box()
    await chat.writing(800)
    assert await chat.page.evaluate(top) == before
    assert await chat.questions.bounding_box() == question
    await chat.finished()
