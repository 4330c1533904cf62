"""A scripted OpenAI-compatible server for what people see: it says given texts, a token each 20 ms, and remembers."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

TOKEN = re.compile(r".{1,4}", re.DOTALL)
"""Four letters, as tokens are in English on average."""


class Script:
    """answers: texts by the model's name. interval: seconds between tokens; 0 sends whole answers."""

    def __init__(self, answers: dict[str, str], interval: float):
        self.answers = answers
        self.interval = interval
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        """Bodies of the POSTs that came, whatever they asked for, but for the question whether there is a tokenizer."""
        self.left: list[float] = []
        """When (`time.monotonic`) a reader hung up in the middle of an answer."""
        self.fails = False
        """Break the connection after a few tokens."""
        self.refuses = False
        """Answer 500."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/tokenize":
            return web.json_response({"error": {"message": "There is no tokenizer here."}}, status=404)
        body = await request.json()
        self.requests.append(body)
        if not request.path.endswith("/chat/completions"):
            return web.json_response({"error": {"message": "There is nothing here."}}, status=404)
        if self.refuses:
            return web.json_response({"error": {"message": "Out of order."}}, status=500)
        text = self.answers[body["model"]]
        if body.get("continue_final_message"):
            text = text.removeprefix(body["messages"][-1]["content"])
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        try:
            await self._say(response, TOKEN.findall(text))
        except ConnectionError:
            self.left.append(time.monotonic())
        return response

    async def _say(self, response: web.StreamResponse, tokens: list[str]) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        for number, token in enumerate(tokens):
            if self.fails and number == 5:
                raise ConnectionResetError
            await response.write(_chunk({"content": token}))
            due += self.interval
            if self.interval:
                await asyncio.sleep(due - loop.time())
        usage = {"prompt_tokens": 20, "completion_tokens": len(tokens), "total_tokens": 20 + len(tokens)}
        await response.write(_chunk({}, "stop"))
        await response.write(_data({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")


def _chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
    return _data({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def _data(fields: dict[str, Any]) -> bytes:
    head = {"id": "chatcmpl-script", "object": "chat.completion.chunk", "created": 1, "model": "script"}
    return b"data: " + json.dumps(head | fields).encode() + b"\n\n"


async def _models(_: web.Request) -> web.Response:
    return web.json_response({"data": []})


@contextmanager
def scripted(answers: dict[str, str], interval: float = 0.02) -> Iterator[Script]:
    """The server, on a loop of its own in a thread."""
    script = Script(answers, interval)
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.add_routes([web.get("/v1/models", _models), web.post("/{path:.*}", script.answer)])
    runner = web.AppRunner(app, shutdown_timeout=0.5)

    async def begin() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(begin(), loop).result(10)
        script.url = f"http://127.0.0.1:{port}/v1"
        yield script
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
