"""The chat page as a person uses it: by its roles and names, never by its classes."""

import re

from playwright.async_api import Locator, Page, expect

ANSWER = re.compile("^Answer")


class ChatPage:
    def __init__(self, page: Page):
        self.page = page
        self.composer = page.get_by_role("textbox", name="Message", exact=True)
        self.send_button = page.get_by_role("button", name="Send", exact=True)
        self.stop_button = page.get_by_role("button", name="Stop", exact=True)
        self.log = page.get_by_role("log")
        self.answers = page.get_by_role("article", name=ANSWER)
        self.questions = page.get_by_role("article", name="You", exact=True)
        self.list = page.get_by_role("navigation", name="Conversations")

    async def open(self, path: str = "/") -> None:
        await self.page.goto(path)
        await expect(self.composer).to_be_visible()

    async def ask(self, text: str) -> None:
        await self.composer.fill(text)
        await self.composer.press("Enter")

    async def ask_whole(self, text: str) -> str:
        """Ask and wait; what the answer says on screen."""
        known = await self.answers.count()
        await self.ask(text)
        await expect(self.answers).to_have_count(known + 1)
        await self.finished()
        return await self.text()

    async def finished(self, seconds: float = 20) -> None:
        """Until the last answer is whole: its own buttons come, and the composer takes the next message."""
        await expect(self.tool("Copy answer")).to_be_visible(timeout=seconds * 1000)
        await expect(self.send_button).to_be_visible()

    async def writing(self, letters: int = 40) -> None:
        """Until the last answer runs and shows so many letters."""
        await expect(self.stop_button).to_be_visible()
        await expect(self.prose()).to_have_text(re.compile(rf"[\s\S]{{{letters},}}"))

    def prose(self, number: int = -1) -> Locator:
        """What the answer says, without its notes and buttons."""
        return self.answers.nth(number).locator(".prose")

    async def text(self, number: int = -1) -> str:
        return await self.prose(number).inner_text()

    def tool(self, name: str, number: int = -1) -> Locator:
        return self.answers.nth(number).get_by_role("button", name=name)

    async def saved(self) -> list[dict[str, str]]:
        """The messages of the conversation on screen, as the server has them."""
        path = "/api/conversations/" + self.page.url.rpartition("/c/")[2]
        response = await self.page.request.get(path)
        assert response.ok, await response.text()
        return list((await response.json())["messages"])
