"""The ledger against what clients were told: it adds up, to the token, through cancellations and the death of the process."""

import csv
import io
import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.conftest import MakeServer
from tests.integration.web import begin, conversation, finish
from tests.support.server import EMBEDDINGS, SIMULATED, Server, until
from tests.support.tenants import new_key

ASK: dict[str, Any] = {"model": SIMULATED, "messages": [{"role": "user", "content": "Five words of a prompt"}]}
PROMPT = 6
"""Of ASK: the role counts as a word."""
PRICES = '[prices.chat."*"]\nprompt = 1_000_000\noutput = 2_000_000\n'
Figures = tuple[int, int, int]
"""Requests, prompt tokens, output tokens."""


def usage(http: httpx.Client, group_by: str = "outcome") -> dict[str, Figures]:
    answer = http.get("/v1/usage", params={"group_by": group_by, "bucket": "all"})
    assert answer.status_code == 200, answer.text
    return {
        "/".join(total["group"].values()): (total["requests"], total["prompt_tokens"], total["output_tokens"])
        for total in answer.json()["data"]
    }


@pytest.fixture
def own(simulated_server: Server, request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """Of an organisation of the test's own."""
    key = new_key(simulated_server.home, request.node.originalname)
    with httpx.Client(base_url=simulated_server.url, timeout=60, headers={"authorization": f"Bearer {key}"}) as made:
        yield made


def official(http: httpx.Client) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{http.base_url}/v1", api_key=http.headers["authorization"][7:], max_retries=0)


def cancelled(client: openai.OpenAI, chunks: int) -> int:
    """The tokens that a stream gave before its client left."""
    seen = 0
    with client.chat.completions.create(**ASK, stream=True) as stream:
        for chunk in stream:
            seen += bool(chunk.choices[0].delta.content)
            if seen == chunks:
                break
    return seen


def test_a_cancelled_stream_costs_what_it_used(own: httpx.Client) -> None:
    with official(own) as client:
        seen = [cancelled(client, chunks) for chunks in (1, 5, 12)]
    until(lambda: usage(own).get("cancelled", (0,))[0] == 3, 5, "the account of the cancelled streams")
    requests, prompt, output = usage(own)["cancelled"]
    assert (requests, prompt) == (3, 3 * PROMPT)
    assert sum(seen) <= output < sum(seen) + 3 * 30, "half a second of tokens at most"


def test_a_request_whose_client_gives_up_costs_what_it_used(own: httpx.Client) -> None:
    with pytest.raises(httpx.ReadTimeout):
        own.post("/v1/chat/completions", json=ASK, timeout=0.4)
    until(lambda: "cancelled" in usage(own), 5, "the account of the abandoned request")
    requests, prompt, output = usage(own)["cancelled"]
    assert (requests, prompt) == (1, PROMPT)
    assert 0 < output < 60


def test_the_ledger_is_the_sum_of_what_clients_were_told(own: httpx.Client, simulated_server: Server) -> None:
    source = random.Random(3)
    told: Counter[str] = Counter()
    with official(own) as client:

        def stream() -> Any:
            chunks = client.chat.completions.create(
                **ASK, stream=True, stream_options={"include_usage": True}, max_tokens=source.randint(1, 20), n=2
            )
            return [c.usage for c in chunks if c.usage][-1]

        def whole() -> Any:
            return client.chat.completions.create(**ASK, max_tokens=source.randint(1, 20)).usage

        def completion() -> Any:
            return client.completions.create(model=SIMULATED, prompt=["a b", "c d e"], max_tokens=5, n=2).usage

        def embedding() -> Any:
            return client.embeddings.create(model=EMBEDDINGS, input=["some words", "more"]).usage

        def leave() -> Any:
            cancelled(client, source.randint(1, 10))

        kinds = [stream, whole, completion, embedding, leave] * 8
        source.shuffle(kinds)
        with ThreadPoolExecutor(8) as pool:
            for kind, found in zip(kinds, pool.map(lambda run: run(), kinds), strict=True):
                name = "embedding" if kind is embedding else "chat" if found else "left"
                told[f"{name} requests"] += 2 if kind is completion else 1
                if found:
                    told[f"{name} prompt"] += found.prompt_tokens
                    told[f"{name} output"] += getattr(found, "completion_tokens", 0)
    until(lambda: usage(own).get("cancelled", (0,))[0] == told["left requests"], 5, "the account of those that left")
    found_usage = usage(own, "kind,outcome")
    assert found_usage["chat/finished"] == tuple(told[f"chat {name}"] for name in ("requests", "prompt", "output"))
    assert found_usage["embedding/finished"] == (told["embedding requests"], told["embedding prompt"], 0)
    assert set(found_usage) == {"chat/finished", "embedding/finished", "chat/cancelled"}
    records = list(csv.DictReader(io.StringIO(own.get("/v1/usage.csv").text)))
    assert len({r["id"] for r in records}) == len(records) == sum(u[0] for u in found_usage.values())
    for column, place in (("prompt_tokens", 1), ("output_tokens", 2)):
        assert sum(int(r[column]) for r in records) == sum(u[place] for u in found_usage.values())
    assert simulated_server.running() == 0


def test_turns_of_the_web_app_count_too(own: httpx.Client) -> None:
    with httpx.Client(base_url=own.base_url, timeout=60) as browser:
        assert browser.post("/api/session", json={"key": own.headers["authorization"][7:]}).status_code == 204
        one = conversation(browser, parameters={"max_tokens": 7})
        finish(browser, begin(browser, one, content="Hi")["answer"]["id"])
        stopped = begin(browser, conversation(browser), content="Hi")["answer"]["id"]
        time.sleep(0.5)
        assert browser.post(f"/api/turns/{stopped}/stop").status_code in (200, 202, 204)
    until(lambda: "cancelled" in usage(own), 5, "the account of the stopped turn")
    found = usage(own)
    assert found["finished"] == (1, 2, 7)
    assert found["cancelled"][:2] == (1, 2)
    assert 0 < found["cancelled"][2] < 64


@pytest.mark.parametrize("header", ["OpenAI-Organization", "X-Tenant", "OpenAI-Project"])
def test_usage_is_the_keys_whatever_a_header_claims(header: str, own: httpx.Client, simulated_server: Server) -> None:
    name = f"other-{header.lower()}"
    other = new_key(simulated_server.home, name)
    before = usage(own)
    answer = own.post("/v1/chat/completions", json=ASK | {"max_tokens": 1}, headers={header: name})
    assert answer.status_code == 200
    assert usage(own)["finished"][0] == before.get("finished", (0,))[0] + 1
    assert own.get("/v1/usage", headers={"authorization": f"Bearer {other}"}).json()["data"] == []


def killed_in_the_middle(server: Server, streams: int) -> int:
    """The tokens that clients had seen when the process died."""
    seen = Counter[int]()

    def read(number: int) -> None:
        with (
            server.client() as http,
            http.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as answer,
        ):
            for line in answer.iter_lines():
                seen[number] += '"content":"' in line.replace(" ", "") and '"content":""' not in line.replace(" ", "")

    with ThreadPoolExecutor(streams) as pool:
        reading = [pool.submit(read, i) for i in range(streams)]
        until(lambda: len(seen) == streams and min(seen.values()) >= 10, 20, "ten tokens of each stream")
        server.kill()
        assert all(isinstance(r.exception(), httpx.TransportError) for r in reading)
    return seen.total()


def test_kill_9_loses_nothing_and_counts_nothing_twice(start_server: MakeServer, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    server = start_server(PRICES=str(prices))
    with server.client() as http:
        before = http.post("/v1/chat/completions", json=ASK | {"max_tokens": 5}).json()["usage"]
        assert before["prompt_tokens"] == PROMPT
    seen = killed_in_the_middle(server, 4)
    found = []
    for _ in range(2):
        server.start()
        with server.client() as http:
            found.append(usage(http))
            budget = http.get("/v1/usage").json()["budget"]
        server.kill()
    assert found[0] == found[1], "each start finds the same"
    assert found[0]["finished"] == (1, PROMPT, 5)
    requests, prompt, output = found[0]["crashed"]
    assert (requests, prompt) == (4, 4 * PROMPT)
    assert seen <= output <= seen + 4 * 3, "what was counted when it died, and no more than was on its way"
    assert budget["spent"] == 5 * PROMPT + 2 * (5 + output)
