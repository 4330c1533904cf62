"""The whole path with a real model behind the real page."""

import os
import signal

import pytest
from playwright.async_api import expect

from tests.e2e.conftest import MakeServer, NewChat
from tests.support.server import Server

pytestmark = [pytest.mark.browser, pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]


async def test_a_person_asks_a_real_model_and_comes_back_to_the_answer(new_chat: NewChat, server: Server) -> None:
    chat = await new_chat(server)
    await chat.page.get_by_role("button", name="Instructions and parameters").click()
    await chat.page.get_by_label("Longest answer").fill("24")
    await chat.page.get_by_label("Temperature").fill("0")
    await expect(chat.page.get_by_role("form").get_by_role("status")).to_have_text("Kept for this new chat.")
    await chat.page.keyboard.press("Escape")
    await chat.ask("What is the capital of France?")
    await chat.finished(60)
    said = await chat.text()
    [question, saved] = await chat.saved()
    assert question["content"] == "What is the capital of France?"
    assert len(saved["content"]) > 20
    await chat.page.reload()
    await expect(chat.prose()).to_have_text(said)


async def test_an_engine_killed_in_the_middle_leaves_its_text_and_the_next_one_goes_on(
    new_chat: NewChat, start_real_server: MakeServer
) -> None:
    server = start_real_server()
    chat = await new_chat(server)
    await chat.ask("Write a long story about a choir by the sea.")
    await chat.writing(60)
    os.kill(server.engine_pid(), signal.SIGKILL)
    await expect(chat.tool("Continue")).to_be_visible()
    shown = await chat.text()
    await chat.tool("Continue").click()
    await chat.writing(len(shown) + 20)
    assert (await chat.text()).startswith(shown.strip()[:40])
    await chat.stop_button.click()
    await expect(chat.answers).to_contain_text("You stopped this answer.")
