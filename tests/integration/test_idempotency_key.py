"""Idempotency-Key with the official Python client: duplicates run once, are charged once, and get one answer."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import MakeServer
from tests.support.server import EMBEDDINGS, SIMULATED, Server, until

DUPLICATES = 50
CHAT: dict[str, Any] = {"model": SIMULATED, "messages": [{"role": "user", "content": "Say it once."}]}
PROMPT: dict[str, Any] = {"model": SIMULATED, "prompt": "Say it once."}
TEXTS: dict[str, Any] = {"model": EMBEDDINGS, "input": ["Embed", "this once."]}
COUNTER = re.compile(r"^antiphon_(?:tokens_total|ttft_seconds_count)\{[^}]*\} \S+$", re.MULTILINE)

Ask = Callable[[openai.AsyncOpenAI, dict[str, str]], Awaitable[Any]]


def key() -> dict[str, str]:
    return {"Idempotency-Key": secrets.token_hex(16)}


def counted(server: Server) -> dict[str, float]:
    """Runs, and the tokens of each kind, of all models."""
    lines = [line.rsplit(" ", 1) for line in COUNTER.findall(httpx.get(f"{server.url}/metrics").text)]
    return {name: float(value) for name, value in lines}


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


@pytest.fixture
async def patient(simulated_server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    """With retries, as the client has them by itself: it takes a 409 for a reason to ask again."""
    url = f"{simulated_server.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=simulated_server.key, max_retries=20, timeout=60) as made:
        yield made


async def chat(client: openai.AsyncOpenAI, headers: dict[str, str]) -> Any:
    return (await client.chat.completions.create(**CHAT, extra_headers=headers)).to_dict()


async def chat_stream(client: openai.AsyncOpenAI, headers: dict[str, str]) -> Any:
    stream = await client.chat.completions.create(**CHAT, stream=True, extra_headers=headers)
    return [chunk.to_dict() async for chunk in stream]


async def completion(client: openai.AsyncOpenAI, headers: dict[str, str]) -> Any:
    return (await client.completions.create(**PROMPT, extra_headers=headers)).to_dict()


async def completion_stream(client: openai.AsyncOpenAI, headers: dict[str, str]) -> Any:
    stream = await client.completions.create(**PROMPT, stream=True, extra_headers=headers)
    return [chunk.to_dict() async for chunk in stream]


async def embeddings(client: openai.AsyncOpenAI, headers: dict[str, str]) -> Any:
    return (await client.embeddings.create(**TEXTS, extra_headers=headers)).to_dict()


@pytest.mark.parametrize("ask", [chat, chat_stream, completion, completion_stream, embeddings])
async def test_fifty_duplicates_run_once_cost_once_and_get_one_answer(
    simulated_server: Server, patient: openai.AsyncOpenAI, ask: Ask
) -> None:
    start = counted(simulated_server)
    await ask(patient, key())
    once = counted(simulated_server)
    headers = key()
    answers = await asyncio.gather(*(ask(patient, headers) for _ in range(DUPLICATES)))
    assert len(answers) == DUPLICATES
    assert answers[0]
    assert all(answer == answers[0] for answer in answers)
    assert spent(start, once)
    assert spent(once, counted(simulated_server)) == spent(start, once)


@pytest.mark.parametrize("stream", [False, True])
def test_a_replay_has_the_same_bytes_and_says_what_it_is(simulated_server: Server, stream: bool) -> None:
    headers = key()
    with simulated_server.client() as http:
        first, again = (
            http.post("/v1/chat/completions", json=CHAT | {"stream": stream}, headers=headers) for _ in range(2)
        )
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["x-original-request-id"] == first.headers["x-request-id"] != again.headers["x-request-id"]
    assert (again.headers["idempotent-replayed"], "idempotent-replayed" in first.headers) == ("true", False)


def test_the_official_client_sees_its_errors(quick: openai.OpenAI) -> None:
    headers = key()
    stream = quick.chat.completions.create(**CHAT, stream=True, extra_headers=headers)
    next(stream)
    with pytest.raises(openai.ConflictError) as in_progress:
        quick.chat.completions.create(**CHAT, stream=True, extra_headers=headers)
    assert in_progress.value.code == "idempotency_key_in_progress"
    assert in_progress.value.response.headers["retry-after"] == "1"
    assert len(list(stream)) > 1
    with pytest.raises(openai.UnprocessableEntityError) as reused:
        quick.chat.completions.create(**CHAT, extra_headers=headers)
    assert (reused.value.code, reused.value.param) == ("idempotency_key_reused", "Idempotency-Key")
    with pytest.raises(openai.BadRequestError) as bad:
        quick.chat.completions.create(**CHAT, extra_headers={"Idempotency-Key": "k" * 256})
    assert bad.value.param == "Idempotency-Key"


def test_a_stream_that_its_client_left_runs_again(simulated_server: Server, quick: openai.OpenAI) -> None:
    headers = key()
    with quick.chat.completions.create(**CHAT, stream=True, extra_headers=headers) as left:
        next(iter(left))
    until(lambda: simulated_server.running() == 0, 10, "the end of the run")
    *_, last = quick.with_options(max_retries=5).chat.completions.create(**CHAT, stream=True, extra_headers=headers)
    assert last.choices[0].finish_reason


def test_a_bad_request_does_not_use_up_its_key(quick: openai.OpenAI) -> None:
    headers = key()
    with pytest.raises(openai.BadRequestError):
        quick.chat.completions.create(**CHAT, temperature=9, extra_headers=headers)
    assert quick.chat.completions.create(**CHAT, extra_headers=headers).choices


def test_after_kill_9_answers_are_there_and_unfinished_keys_are_free(start_server: MakeServer) -> None:
    server = start_server()
    done, unfinished = key(), key()
    with server.client() as http:
        first = http.post("/v1/chat/completions", json=CHAT, headers=done)
        with http.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}, headers=unfinished) as stream:
            next(stream.iter_bytes())
            server.kill()
    server.start()
    with server.client() as http:
        again = http.post("/v1/chat/completions", json=CHAT, headers=done)
        run = http.post("/v1/chat/completions", json=CHAT | {"stream": True}, headers=unfinished)
    assert (first.status_code, again.content, again.headers["idempotent-replayed"]) == (200, first.content, "true")
    assert "idempotent-replayed" not in run.headers
    assert run.text.endswith("data: [DONE]\n\n")


def test_a_turn_of_the_web_app_that_is_sent_again_is_started_once(simulated_server: Server) -> None:
    headers = key()
    with simulated_server.client() as http:
        conversation = http.post("/api/conversations", json={}).json()["id"]
        turns = f"/api/conversations/{conversation}/turns"
        first, again = (http.post(turns, json={"content": "Hi"}, headers=headers) for _ in range(2))
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.content == first.content
        assert again.headers["idempotent-replayed"] == "true"
        assert len(http.get(f"/api/conversations/{conversation}").json()["messages"]) == 2
        assert http.post(turns, json={"content": "Ho"}, headers=headers).status_code == 422
