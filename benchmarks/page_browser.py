"""Chromium for the page's figures, and what is asked of it."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, sync_playwright

ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    " --disable-sync"
).split()
AXE = Path(__file__).parents[1] / "gateway" / "web" / "node_modules" / "axe-core" / "axe.min.js"
CPU_SLOWER = 4
SLOW_NETWORK = {"offline": False, "latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 94_000}
"""1.6 Mb/s down and 0.75 Mb/s up at 150 ms: what Lighthouse calls slow 4G."""

WATCH = """
window.longTasks = [];
new PerformanceObserver((list) => longTasks.push(...list.getEntries()))
  .observe({type: "longtask", buffered: true});
const usable = () => {
  const composer = document.querySelector("#composer");
  if (!composer || composer.disabled) return requestAnimationFrame(usable);
  requestAnimationFrame(() => (window.usableAt = performance.now()));
};
requestAnimationFrame(usable);
"""
NODES = """() => {
  const walker = document.createTreeWalker(document, NodeFilter.SHOW_ALL);
  let count = 0;
  while (walker.nextNode()) count += 1;
  return count;
}"""


@contextmanager
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not path:
        raise RuntimeError("The page's figures need Chromium: run `make machine`.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGS)
        try:
            yield browser
        finally:
            browser.close()


def signed_in(browser: Browser, port: int, key: str, **options: Any) -> BrowserContext:
    """A context with an empty cache and the web app's cookie."""
    base = f"http://127.0.0.1:{port}"
    context = browser.new_context(**({"base_url": base, "viewport": {"width": 1280, "height": 800}} | options))
    context.add_init_script(WATCH)
    answered = context.request.post(f"{base}/api/session", data={"key": key})
    assert answered.status == 204, answered.text()
    return context


class Traffic:
    """What came over the wire: files of the page and answers of its API apart."""

    def __init__(self, devtools: CDPSession):
        self.requests = 0
        self.transferred = self.unpacked = 0
        devtools.send("Network.enable")
        devtools.on("Network.requestWillBeSent", self._sent)
        devtools.on("Network.dataReceived", self._data)
        devtools.on("Network.loadingFinished", self._finished)

    def _sent(self, event: dict[str, Any]) -> None:
        self.requests += not event["request"]["url"].startswith("data:")

    def _data(self, event: dict[str, Any]) -> None:
        self.unpacked += event["dataLength"]

    def _finished(self, event: dict[str, Any]) -> None:
        self.transferred += int(event["encodedDataLength"])


def usable_at(page: Page) -> float:
    """Seconds from the navigation to a composer that takes text."""
    page.wait_for_function("window.usableAt", timeout=60_000)
    return float(page.evaluate("window.usableAt")) / 1000


def performance(devtools: CDPSession) -> dict[str, float]:
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return {m["name"]: m["value"] for m in metrics}


def ask(page: Page, text: str) -> None:
    page.locator("#composer").fill(text)
    page.locator("#composer").press("Enter")


def finished(page: Page, seconds: float = 60) -> None:
    """Until the answer is whole and saved."""
    page.locator("article[aria-label^=Answer] footer").last.wait_for(timeout=seconds * 1000)
    page.get_by_role("button", name="Send", exact=True).wait_for(timeout=seconds * 1000)


def until(happens: Callable[[], bool], patience: float = 20, pause: float = 0.005) -> float:
    began = time.monotonic()
    while not happens():
        if time.monotonic() - began > patience:
            raise RuntimeError(f"not within {patience} s")
        time.sleep(pause)
    return time.monotonic() - began


def grave_violations(page: Page) -> list[str]:
    """axe-core's critical and serious ones. The context must bypass the page's policy, which forbids the injection."""
    if page.evaluate("typeof window.axe") == "undefined":
        page.add_script_tag(path=AXE)
    found = page.evaluate("async () => JSON.stringify((await axe.run()).violations)")
    return [
        f"{v['id']} ({v['impact']}): {v['nodes'][0]['html'][:120]}"
        for v in json.loads(found)
        if v["impact"] in ("critical", "serious")
    ]
