"""The chat page in Chromium, against the product on a scripted model at 50 tokens/s: what it weighs, costs and keeps."""

import os
import re
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, Route

from benchmarks.page_browser import (
    CPU_SLOWER,
    NODES,
    SLOW_NETWORK,
    Traffic,
    ask,
    chromium,
    finished,
    grave_violations,
    performance,
    signed_in,
    until,
    usable_at,
)
from benchmarks.page_text import answer, short
from benchmarks.page_upstream import Script, scripted
from benchmarks.processes import antiphon, child, free_port
from benchmarks.report import Figure, show

MODEL = "script"
TOKENS = 1000
TURNS = 50
STOPS = 5
FILES = "performance.getEntriesByType('resource').reduce((sum, r) => sum + r.transferSize * /assets/.test(r.name), 0) / 1000"
PHONE = {"width": 390, "height": 844}
OPENED = """async (id) => {
  const nextFrame = () => new Promise(requestAnimationFrame);
  const began = performance.now();
  document.querySelector(`a[href="/c/${id}"]`).click();
  const last = () => [...document.querySelectorAll("[role=log] article[aria-label^=Answer] footer")].at(-1);
  const log = () => document.querySelector("[role=log]");
  const shown = () => last() && log().scrollHeight > 2 * innerHeight && last().getBoundingClientRect().bottom <= innerHeight;
  while (!shown()) await nextFrame();
  await nextFrame();
  return (performance.now() - began) / 1000;
}"""


def run() -> None:
    with scripted({MODEL: answer(TOKENS)}) as script, antiphon(MODEL, None, **_settings(script)) as us:
        _, port, key = us
        with chromium() as browser:
            first_load(browser, port, key)
            long_answer(browser, port, key, script)
            long_conversation(browser, port, key, script)
            stop(browser, port, key)
            access(browser, port, key)
    with scripted({MODEL: answer(TOKENS)}) as script, chromium() as browser:
        killed(browser, script)


def _settings(script: Script) -> dict[str, str]:
    return {"ANTIPHON_UPSTREAM_URL": script.url, "ANTIPHON_EMBEDDING_MODEL": "none"}


def first_load(browser: Browser, port: int, key: str) -> None:
    with signed_in(browser, port, key) as context:
        page = context.new_page()
        traffic = Traffic(context.new_cdp_session(page))
        page.goto("/")
        plain = usable_at(page)
        page.wait_for_load_state("networkidle")
    with signed_in(browser, port, key) as context:
        page = context.new_page()
        devtools = context.new_cdp_session(page)
        devtools.send("Network.enable")
        devtools.send("Network.emulateNetworkConditions", SLOW_NETWORK)
        devtools.send("Emulation.setCPUThrottlingRate", {"rate": CPU_SLOWER})
        page.goto("/")
        slow = usable_at(page)
    show("First load of the chat page, empty cache", [
        Figure("transferred", traffic.transferred / 1000, "KB", most=200),
        Figure("the same, unpacked", traffic.unpacked / 1000, "KB"),
        Figure("requests", traffic.requests, "", most=10),
        Figure("usable composer", plain, "s", most=0.6),
        Figure(f"usable composer at CPU÷{CPU_SLOWER}, 1.6 Mb/s and 150 ms", slow, "s", most=3),
        Figure("usable, and answered, while no list of models comes", _without_models(browser, port, key), "s", most=0.6),
    ])  # fmt: skip


def _without_models(browser: Browser, port: int, key: str) -> float:
    """Seconds until the composer is usable while the models never come; a message sent then must be answered."""
    held: list[Route] = []
    with signed_in(browser, port, key) as context:
        page = context.new_page()
        page.route("**/api/models", lambda route: held.append(route))
        page.goto("/")
        seconds = usable_at(page)
        ask(page, "Are you there?")
        page.locator("article[aria-label^=Answer] .prose").wait_for(timeout=20_000)
        assert held, "the page has not asked for the models yet"
        page.get_by_role("button", name="Stop", exact=True).click()
        for route in held:
            route.abort()
    return seconds


def long_answer(browser: Browser, port: int, key: str, script: Script) -> None:
    with signed_in(browser, port, key) as context:
        page = context.new_page()
        devtools = context.new_cdp_session(page)
        devtools.send("Performance.enable")
        page.goto("/")
        page.wait_for_load_state("networkidle")
        asked = len(script.requests)
        before, begun = performance(devtools), page.evaluate("performance.now()")
        ask(page, "How does a hash table work?")
        finished(page)
        after = performance(devtools)
        page.wait_for_timeout(1500)  # for whatever a page may still ask for behind the reader's back
        first = len(script.requests) - asked
        tasks = page.evaluate("(since) => longTasks.filter((t) => t.startTime > since).map((t) => t.duration)", begun)
        files = page.evaluate(FILES)
        ask(page, "And then?")
        finished(page)
        page.wait_for_timeout(1500)
        second = len(script.requests) - asked - first
    show(f"An answer of {TOKENS} tokens at 50 tokens/s", [
        Figure("scripting", after["ScriptDuration"] - before["ScriptDuration"], "s", most=1.5),
        Figure("all work of the page's thread", after["TaskDuration"] - before["TaskDuration"], "s"),
        Figure("long tasks (over 50 ms)", len(tasks), "", most=0),
        Figure("the longest of them", max(tasks, default=0), "ms"),
        Figure("files of the page by then: markdown, highlighter and KaTeX too", files, "KB"),
        Figure("upstream calls of a first message", first, "", most=1),
        Figure("upstream calls of a second message", second, "", most=1),
    ])  # fmt: skip


def long_conversation(browser: Browser, port: int, key: str, script: Script) -> None:
    with signed_in(browser, port, key) as context:
        conversation = _filled(context.request, script)
        page = context.new_page()
        page.goto("/")
        page.locator(f'a[href="/c/{conversation}"]').wait_for()
        page.wait_for_load_state("networkidle")
        cold = page.evaluate(OPENED, conversation)
        page.get_by_role("button", name="New chat").first.click()
        page.wait_for_timeout(500)
        warm = page.evaluate(OPENED, conversation)
        nodes = _scrolled(page)
    show(f"A conversation of {2 * TURNS} messages", [
        Figure("open it, the first of this page's life", cold, "s", most=0.25),
        Figure("open it again", warm, "s", most=0.25),
        Figure("nodes of the document, all scrolled", nodes, "", most=6000),
    ])  # fmt: skip


def _filled(request: Any, script: Script) -> str:
    """The id of a conversation of TURNS questions and answers, made through the API at full speed."""
    interval, script.interval = script.interval, 0
    conversation = request.post("/api/conversations", data={}).json()["id"]
    parent = None
    for number in range(TURNS):
        script.answers[MODEL] = short(number)
        turn = {"content": f"Question {number}: and what then?", "parent_id": parent}
        started = request.post(f"/api/conversations/{conversation}/turns", data=turn).json()
        parent = started["answer"]["id"]
        assert '"complete"' in request.get(f"/api/turns/{parent}/events?from=0").text()
    script.interval, script.answers[MODEL] = interval, answer(TOKENS)
    return str(conversation)


def _scrolled(page: Page) -> int:
    """The most nodes that there were on the way from the end to the top and back."""
    most = 0
    for step in (-600, 600):
        at = None
        while at != (at := page.evaluate("document.querySelector('[role=log]').scrollTop")):
            most = max(most, page.evaluate(NODES))
            page.evaluate("(step) => document.querySelector('[role=log]').scrollBy(0, step)", step)
            page.wait_for_timeout(40)
    return most


def stop(browser: Browser, port: int, key: str) -> None:
    with signed_in(browser, port, key) as context:
        page = context.new_page()
        page.goto("/")
        engine, said = [], []
        for number in range(STOPS):
            ask(page, f"A long story, please ({number}).")
            page.locator("article[aria-label^=Answer] .prose").nth(number).wait_for()
            until(lambda: _running(port) == 1)
            began = time.monotonic()
            page.get_by_role("button", name="Stop", exact=True).click(no_wait_after=True)
            until(lambda: _running(port) == 0)
            engine.append(time.monotonic() - began)
            page.get_by_text("You stopped this answer.").nth(number).wait_for()
            said.append(time.monotonic() - began)
    show(f"Stop (the slowest of {STOPS})", [
        Figure("from the click to the engine's end", max(engine), "s", most=0.3),
        Figure("from the click to the page that says so", max(said), "s"),
    ])  # fmt: skip


def _running(port: int) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        found = re.search(r"^antiphon_engine_running\S* (\S+)$", response.read().decode(), re.MULTILINE)
    assert found
    return int(float(found[1]))


def access(browser: Browser, port: int, key: str) -> None:
    """axe-core over each state of the page, wide and narrow, light and dark."""
    figures = []
    for scheme in ("light", "dark"):
        for name, viewport in (("1280 px", {"width": 1280, "height": 800}), ("390 px", PHONE)):
            options = {"bypass_csp": True, "color_scheme": scheme, "viewport": viewport}
            with signed_in(browser, port, key, **options) as context:
                found = _violations(context.new_page())
            for line in sorted(found):
                print(f"  {scheme}, {name}: {line}")
            figures.append(Figure(f"critical and serious violations, {scheme}, {name}", len(found), "", most=0))
    show("axe-core: empty, answer, settings, conversations, sign-in", figures)


def _violations(page: Page) -> set[str]:
    page.goto("/")
    page.get_by_role("heading", name="What shall we work on?").wait_for()
    found = {*grave_violations(page)}
    page.keyboard.press("Control+k")
    page.locator("nav a").first.wait_for()
    found |= {*grave_violations(page)}
    page.locator("nav a", has_text="How does a hash table work?").click()
    page.locator("math").first.wait_for()
    page.locator(".hljs-keyword").first.wait_for()
    found |= {*grave_violations(page)}
    page.locator("#settings-button").click()
    page.get_by_label("Temperature").wait_for()
    found |= {*grave_violations(page)}
    page.context.clear_cookies()
    page.goto("/")
    page.get_by_label("API key").wait_for()
    return found | {*grave_violations(page)}


@contextmanager
def _serving(home: str, port: int, script: Script) -> Iterator[tuple[Any, list[str]]]:
    command = [sys.executable, "-m", "deploy.cli", "serve", "--port", str(port), "--model", MODEL]
    with child(command, "Try:", {"ANTIPHON_HOME": home} | _settings(script)) as started:
        yield started


def _last_message(page: Page) -> dict[str, Any]:
    return dict(page.request.get(page.url.replace("/c/", "/api/conversations/")).json()["messages"][-1])


def killed(browser: Browser, script: Script) -> None:
    """kill -9 of the server in the middle of an answer, and its return."""
    with tempfile.TemporaryDirectory() as home:
        port = free_port()
        with _serving(home, port, script) as (process, lines):
            found = re.search(r"sk-[\w-]+", "".join(lines))
            assert found
            context = signed_in(browser, port, found[0])
            page = context.new_page()
            page.goto("/")
            ask(page, "How does a hash table work?")
            prose = page.locator("article[aria-label^=Answer] .prose")
            until(lambda: prose.count() == 1 and len(prose.inner_text()) > 400)
            os.kill(process.pid, signal.SIGKILL)
            note = page.get_by_text(re.compile("^Interrupted"))
            note.wait_for()
            shown = prose.inner_text()
        with _serving(home, port, script):
            page.get_by_text(re.compile("^Interrupted. The server stopped")).wait_for(timeout=30_000)
            after, saved = prose.inner_text(), _last_message(page)
            page.get_by_role("button", name="Continue").click()
            note.wait_for(state="detached")
            finished(page)
            whole = _last_message(page)
            context.close()
    show("The server is killed in the middle of an answer", [
        Figure("share of the text shown that stays on screen", float(after.startswith(shown)), "", least=1),
        Figure("marked as interrupted in the conversation too", float(saved["status"] == "interrupted"), "", least=1),
        Figure("Continue makes it whole", float(whole["content"] == answer(TOKENS)), "", least=1),
    ])  # fmt: skip
