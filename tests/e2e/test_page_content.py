"""What an answer looks like, and what of it reaches the clipboard."""

import pytest
from playwright.async_api import expect

from benchmarks.page_upstream import Script
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import NewChat

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ANSWER = """It costs **$5** today and $10 tomorrow, so $5 to $10 in all.

Euler wrote $e^{i\\pi} = -1$ and

$$
\\int_0^1 x\\,dx = \\frac{1}{2}
$$

| name | price |
| --- | ---: |
| tea, green | $3 |

```python
def tea(cups: int) -> str:
    return "tea" * cups
```
"""
CLIPBOARD = """async () => {
  const [item] = await navigator.clipboard.read();
  const read = async (type) => (item.types.includes(type) ? (await item.getType(type)).text() : "");
  return [await read("text/plain"), await read("text/html")];
}"""


@pytest.fixture
def written(script: Script) -> Script:
    script.answers["script"] = ANSWER
    script.interval = 0
    return script


async def test_prices_are_no_maths_and_maths_is_drawn(chat: ChatPage, written: Script) -> None:
    await chat.ask("Show me everything.")
    await expect(chat.prose().locator("math")).to_have_count(2)
    await expect(chat.prose().locator("p").first).to_have_text(
        "It costs $5 today and $10 tomorrow, so $5 to $10 in all."
    )
    await expect(chat.prose().locator("p strong").first).to_have_text("$5")
    await expect(chat.prose().locator("math[display=block]")).to_have_count(1)


async def test_code_is_coloured_once_it_is_whole_and_copied_as_it_is(new_chat: NewChat, written: Script) -> None:
    chat = await new_chat(permissions=["clipboard-read", "clipboard-write"])
    await chat.ask("Show me everything.")
    await expect(chat.prose().locator(".hljs-keyword").first).to_have_text("def")
    await chat.tool("Copy python code").click()
    text, _ = await chat.page.evaluate(CLIPBOARD)
    assert text.rstrip("\n") == 'def tea(cups: int) -> str:\n    return "tea" * cups'
    await chat.tool("Copy CSV of this table").click()
    text, _ = await chat.page.evaluate(CLIPBOARD)
    assert text == 'name,price\r\n"tea, green",$3'


async def test_a_copied_answer_is_markdown_and_html_at_once(new_chat: NewChat, written: Script) -> None:
    chat = await new_chat(permissions=["clipboard-read", "clipboard-write"])
    await chat.ask("Show me everything.")
    await chat.tool("Copy answer").click()
    await expect(chat.page.get_by_role("status").filter(has_text="Copied")).to_be_attached()
    text, html = await chat.page.evaluate(CLIPBOARD)
    assert text == ANSWER
    assert "<strong>$5</strong>" in html
    assert "<table>" in html
    assert "<button" not in html
