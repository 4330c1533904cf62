"""kill -9 of the engine's process: the stream says so, and the next request is served."""

import json
import os
import signal
import threading
import time

import httpx

from tests.conftest import MakeServer
from tests.support.server import MODEL, until

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Count to one thousand."}], "max_tokens": 1500,
        "logit_bias": {"2": -100, "0": -100}}  # fmt: skip


def test_a_killed_engine_ends_its_streams_with_one_error_and_comes_back(start_real_server: MakeServer) -> None:
    server = start_real_server()
    engine = server.engine_pid()
    texts: list[str] = []
    whole: list[httpx.Response] = []

    def follow() -> None:
        with server.client() as http, http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as s:
            texts.append("".join(s.iter_text()))

    def wait() -> None:
        with server.client() as http:
            whole.append(http.post("/v1/chat/completions", json=CHAT))

    threads = [threading.Thread(target=follow), threading.Thread(target=follow), threading.Thread(target=wait)]
    for thread in threads:
        thread.start()
    until(lambda: server.running() == 3, 20, "three running")
    time.sleep(1)
    os.kill(engine, signal.SIGKILL)
    killed = time.monotonic()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive(), "a request hung"
    print(f"told after {time.monotonic() - killed:.2f} s")
    for text in texts:
        frames = [f for f in text.split("\n\n") if f]
        assert len(frames) > 3
        errors = [f for f in frames if f.startswith('data: {"error"')]
        assert errors == frames[-1:]
        error = json.loads(errors[0].removeprefix("data: "))["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_failed")
        assert "[DONE]" not in text
        assert all(json.loads(f[6:])["choices"][0]["finish_reason"] is None for f in frames[:-1])
    assert whole[0].status_code == 503
    assert whole[0].json()["error"]["code"] == "engine_failed"

    with server.client() as http:
        answer = http.post("/v1/chat/completions", json=CHAT | {"max_tokens": 3}, timeout=30)
    back = time.monotonic() - killed
    print(f"served again after {back:.2f} s")
    assert answer.status_code == 200, answer.text
    assert back < 20
    assert server.engine_pid() != engine
    assert (
        'antiphon_engine_restarts_total{worker="smollm2-135m-instruct"} 1.0' in httpx.get(f"{server.url}/metrics").text
    )


def test_a_stored_answer_keeps_what_its_engine_had_said_and_goes_on(start_real_server: MakeServer) -> None:
    server = start_real_server()
    with server.client() as http:
        parameters = {"max_tokens": 1000, "temperature": 0}
        conversation = http.post("/api/conversations", json={"parameters": parameters}).json()["id"]
        question = {"content": "Write a very long story about the sea.", "parent_id": None}
        answer_id = http.post(f"/api/conversations/{conversation}/turns", json=question).json()["answer"]["id"]
        shown, last, engine = "", {}, server.engine_pid()
        with http.stream("GET", f"/api/turns/{answer_id}/events") as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    last = json.loads(line[6:])
                    shown += last.get("text", "")
                    if len(shown) > 3 and engine:
                        os.kill(engine, signal.SIGKILL)
                        engine = 0
        assert last["error"]["code"] == "engine_failed"
        saved = _message(http, conversation, answer_id)
        assert (saved["status"], saved["content"]) == ("interrupted", shown)
        assert saved["error"]
        assert last["message"]["content"] == shown
        body = {"continue": answer_id, "parameters": {"max_tokens": 5}}
        assert http.post(f"/api/conversations/{conversation}/turns", json=body).status_code == 201
        with http.stream("GET", f"/api/turns/{answer_id}/events", timeout=30) as stream:
            assert '"done"' in "".join(stream.iter_text())
        assert _message(http, conversation, answer_id)["content"].startswith(shown)


def _message(http: httpx.Client, conversation: str, message: str) -> dict[str, str]:
    found: list[dict[str, str]] = http.get(f"/api/conversations/{conversation}").json()["messages"]
    return next(m for m in found if m["id"] == message)
