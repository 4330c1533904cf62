"""The list of conversations, settings of one, and the choice of a model."""

import pytest
from playwright.async_api import expect

from benchmarks.page_upstream import Script
from tests.e2e.chat_page import ChatPage

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_a_conversation_is_renamed(chat: ChatPage) -> None:
    await chat.ask_whole("To be renamed.")
    row = chat.list.get_by_role("listitem").filter(has_text="To be renamed.")
    await row.hover()
    await row.get_by_role("button", name="Rename To be renamed.").click()
    await chat.page.get_by_role("textbox", name="Title").fill("A better name")
    await chat.page.keyboard.press("Enter")
    await expect(chat.list.get_by_role("link", name="A better name")).to_be_focused()
    await chat.page.reload()
    await expect(chat.list.get_by_role("link", name="A better name")).to_be_visible()
    await expect(chat.page).to_have_title("A better name · Antiphon")


async def test_a_conversation_is_deleted_after_a_question(chat: ChatPage) -> None:
    await chat.ask_whole("To be deleted.")
    [_, conversation] = chat.page.url.split("/c/")
    row = chat.list.get_by_role("listitem").filter(has_text="To be deleted.")
    await row.hover()
    await row.get_by_role("button", name="Delete To be deleted.").click()
    await expect(row.get_by_role("button", name="Cancel")).to_be_focused()
    await row.get_by_role("button", name="Delete", exact=True).click()
    await expect(row).to_have_count(0)
    await expect(chat.page.get_by_role("heading", name="What shall we work on?")).to_be_visible()
    assert (await chat.page.request.get(f"/api/conversations/{conversation}")).status == 404


async def test_search_finds_words_of_titles_and_of_messages(chat: ChatPage, script: Script) -> None:
    script.answers["script"] = "The answer speaks of a heliotrope."
    await chat.ask_whole("What is that flower?")
    await chat.page.keyboard.press("Control+K")
    search = chat.page.get_by_role("searchbox", name="Search conversations")
    await expect(search).to_be_focused()
    for words in ("heliotrope", "that flower"):
        await search.fill(words)
        await expect(chat.list.get_by_role("link")).to_have_text(["What is that flower?"])
    await search.fill("no such words anywhere")
    await expect(chat.list).to_contain_text("Nothing found.")


async def test_instructions_and_parameters_reach_the_model(chat: ChatPage, script: Script) -> None:
    await chat.page.get_by_role("button", name="Instructions and parameters").click()
    panel = chat.page.get_by_role("form", name="Instructions and parameters")
    await panel.get_by_label("Instructions", exact=True).fill("Answer in verse.")
    await panel.get_by_label("Temperature").fill("0.3")
    await panel.get_by_label("Longest answer").fill("77")
    await expect(panel.get_by_role("status")).to_have_text("Kept for this new chat.")
    await chat.ask_whole("How is the sea?")
    [request] = script.requests
    assert request["messages"][0] == {"role": "system", "content": "Answer in verse."}
    assert (request["temperature"], request["max_tokens"]) == (0.3, 77)
    await panel.get_by_label("Temperature").fill("0.9")
    await expect(panel.get_by_role("status")).to_have_text("Saved.")
    await chat.page.reload()
    await chat.page.get_by_role("button", name="Instructions and parameters").click()
    await expect(panel.get_by_label("Instructions", exact=True)).to_have_value("Answer in verse.")
    await expect(panel.get_by_label("Temperature")).to_have_value("0.9")
    await chat.ask_whole("And now?")
    assert script.requests[-1]["temperature"] == 0.9


async def test_the_model_picked_last_is_the_one_of_new_chats(chat: ChatPage, script: Script) -> None:
    picker = chat.page.get_by_role("button", name="Model:")
    await expect(picker).to_have_accessible_name("Model: script")
    await picker.click()
    await chat.page.get_by_role("option", name="other").click()
    await chat.page.reload()
    await expect(picker).to_have_accessible_name("Model: other")
    await chat.ask_whole("Who are you?")
    assert script.requests[-1]["model"] == "other"
    await chat.page.keyboard.press("Control+Shift+O")
    await expect(picker).to_have_accessible_name("Model: other")


async def test_the_composer_works_before_the_models_have_come(chat: ChatPage, script: Script) -> None:
    held = []
    await chat.page.route("**/api/models", lambda route: held.append(route))
    await chat.page.reload()
    await chat.ask_whole("Are you there?")
    assert held
    assert script.requests[-1]["model"] == "script"
