"""Whoever closes his socket frees the engine within half a second, by the engine's own count."""

import json
import socket
import struct
import time
from typing import Any

import pytest

from inference.settings import LlamaCppSettings
from tests.support.server import MODEL, Server, until

PROMISE = 0.5
ENDLESS = {"model": MODEL, "max_tokens": 2000, "temperature": 1.0, "logit_bias": {"2": -100, "0": -100}}
CHAT = ENDLESS | {"messages": [{"role": "user", "content": "Count to one thousand, in words."}]}
LONG = " ".join(f"word{i % 97}" for i in range(600))


def send(server: Server, body: dict[str, Any], path: str = "/v1/chat/completions") -> socket.socket:
    data = json.dumps(body).encode()
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    sock.sendall(
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {server.key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        + data
    )
    return sock


def freed(server: Server) -> float:
    """Seconds until the engine runs nothing. Asking it all the time would slow it down."""
    return until(lambda: server.running() == 0, 10, "the end of the engine's work", pause=0.04)


def idle(server: Server) -> None:
    until(lambda: server.running() == 0, 30, "an idle engine")


@pytest.mark.parametrize("way", ["closed", "reset", "half-closed"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_closing_the_socket_in_mid_answer_frees_the_engine(server: Server, stream: bool, way: str) -> None:
    idle(server)
    with send(server, CHAT | {"stream": stream}) as sock:
        if stream:
            while b"content" not in sock.recv(65536):
                pass
        until(lambda: server.running() == 1, 10, "the engine's start")
        time.sleep(0.3)
        assert server.running() == 1
        if way == "half-closed":
            sock.shutdown(socket.SHUT_WR)
        else:
            if way == "reset":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        took = freed(server)
    assert took < PROMISE, f"the engine was free after {took:.3f} s"


SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "minLength": 3000}}, "required": ["text"]}
TOOLS = [{"type": "function", "function": {"name": "write", "parameters": SCHEMA}}]
PROMPTS = {name: value for name, value in CHAT.items() if name != "messages"} | {"prompt": ["One", "Two", "Three"]}


@pytest.mark.parametrize(
    ("path", "body", "running"),
    [
        ("/v1/chat/completions", CHAT | {"n": 4}, 4),
        ("/v1/completions", PROMPTS | {"stream": True}, 3),
        ("/v1/chat/completions", CHAT | {"tools": TOOLS, "tool_choice": "required", "stream": True}, 1),
    ],
    ids=["n choices", "many prompts", "a tool call that is held back"],
)
def test_all_that_a_request_has_started_ends_with_it(
    server: Server, path: str, body: dict[str, Any], running: int
) -> None:
    """Sequences that are decoded together take longer steps: the best of three counts, for others use this machine."""
    took = []
    for _ in range(3):
        idle(server)
        with send(server, body, path) as sock:
            until(lambda: server.running() == running, 10, "the engine's start", pause=0.04)
            time.sleep(0.3)
            assert server.running() == running
            sock.close()
            took.append(freed(server))
    print("free after", [f"{t * 1000:.0f} ms" for t in took])
    assert min(took) < PROMISE


def fresh(length: int = len(LONG)) -> list[dict[str, str]]:
    """A long prompt of which no prefix is cached."""
    return [{"role": "user", "content": f"{time.time_ns()} {LONG[:length]}"}]


@pytest.fixture(scope="module")
def batch_s(server: Server) -> float:
    """Seconds that the engine takes for one batch of a prompt on this machine, now."""
    idle(server)
    with server.client() as http:
        began = time.monotonic()
        usage = http.post("/v1/chat/completions", json=CHAT | {"messages": fresh(700), "max_tokens": 1}).json()["usage"]
    tokens = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    return (time.monotonic() - began) * LlamaCppSettings().prefill_batch / tokens


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_closing_the_socket_during_the_prefill_of_a_long_prompt_frees_the_engine(
    server: Server, batch_s: float, stream: bool
) -> None:
    """The engine looks up after a batch of the prompt, so a slow or busy machine may take two batches instead."""
    took = []
    for _ in range(3):
        idle(server)
        with send(server, CHAT | {"messages": fresh(), "stream": stream}) as sock:
            until(lambda: server.running() == 1, 10, "the engine's start", pause=0.02)
            time.sleep(0.2)
            sock.setblocking(False)
            with pytest.raises(BlockingIOError):
                sock.recv(1)
            assert server.running() == 1
            sock.close()
            took.append(freed(server))
    print("free after", [f"{t * 1000:.0f} ms" for t in took], f"with {batch_s * 1000:.0f} ms a batch")
    assert min(took) < max(PROMISE, 2 * batch_s + 0.1)


def test_waiting_requests_of_gone_clients_are_not_run(server: Server) -> None:
    """More than the engine's eight slots: those that wait in it go as well."""
    idle(server)
    socks = [send(server, CHAT) for _ in range(12)]
    until(lambda: server.running() == 8, 10, "eight running")
    for sock in socks:
        sock.close()
    took = freed(server)
    print(f"twelve were gone after {took * 1000:.0f} ms")
    assert took < 5, "those that waited were run"
    with server.client() as http:
        assert http.post("/v1/completions", json={"model": MODEL, "prompt": "x", "max_tokens": 1}).status_code == 200


def test_a_gone_client_is_logged_as_499(server: Server) -> None:
    idle(server)
    before = server.log.count('"status":499')
    with send(server, CHAT | {"stream": True}) as sock:
        sock.recv(100)
    until(lambda: server.log.count('"status":499') == before + 1, 2, "the log line")
