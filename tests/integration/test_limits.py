"""Limits as a client meets them: refusals that say when to come back, and are right."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.support.server import SIMULATED, Server, until
from tests.support.tenants import new_key

TIERS = """
[enterprise]
[requests.limits.chat]
organisation = { requests_per_minute = 20 }
[requests.limits.embedding]
organisation = { requests_per_minute = 20 }
[tokens]
max_output_tokens = 1000
[tokens.limits.chat]
organisation = { tokens_per_minute = 300 }
[streams.limits.chat]
organisation = { concurrent_streams = 2 }
[poor]
monthly_budget = 100
[some]
models = ["other-*"]
"""
PRICES = '[prices.chat."*"]\noutput = 1_000_000\n'
ASK: dict[str, Any] = {"model": SIMULATED, "messages": [{"role": "user", "content": "Hi"}]}
HEADERS = [f"x-ratelimit-{name}-{kind}" for kind in ("requests", "tokens") for name in ("limit", "remaining", "reset")]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("limited")
    (home / "tiers.toml").write_text(TIERS)
    (home / "prices.toml").write_text(PRICES)
    files = {name: str(home / f"{name.lower()}.toml") for name in ("TIERS", "PRICES")}
    with Server(home, model=SIMULATED, **files) as started:
        yield started


class Counted(httpx.Client):
    """Knows how many requests went out."""

    def __init__(self) -> None:
        self.sent = 0
        super().__init__(timeout=60, event_hooks={"request": [self._count]})

    def _count(self, _: httpx.Request) -> None:
        self.sent += 1


@pytest.fixture
def client(limited: Server, request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    """Of an organisation of the test's own, in the tier that the test names."""
    tier = request.param
    key = new_key(limited.home, request.node.originalname, tier=tier, tiers=limited.home / "tiers.toml")
    with openai.OpenAI(base_url=f"{limited.url}/v1", api_key=key, max_retries=0, http_client=Counted()) as made:
        yield made


def tier(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("client", [name], indirect=True)


def sent(client: openai.OpenAI) -> int:
    assert isinstance(client._client, Counted)
    return client._client.sent


def refusal_of(call: Callable[[], Any]) -> openai.RateLimitError:
    """Of a call that is made until it is refused."""
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            errors = [e for e in (asked.exception() for asked in [pool.submit(call) for _ in range(8)]) if e]
            if errors:
                assert isinstance(errors[-1], openai.RateLimitError), errors[-1]
                return errors[-1]
    raise AssertionError("never refused")


def use_up(client: openai.OpenAI, **fields: Any) -> openai.RateLimitError:
    return refusal_of(lambda: client.chat.completions.create(**(ASK | fields)))


def assert_says_when(error: openai.RateLimitError, kind: str) -> float:
    headers = error.response.headers
    assert (error.type, error.code) == ("rate_limit_error", "rate_limit_exceeded")
    assert {h for h in headers if h.startswith("x-ratelimit")} == {h for h in HEADERS if h.endswith(kind)}
    assert int(headers[f"x-ratelimit-remaining-{kind}"]) < int(headers[f"x-ratelimit-limit-{kind}"])
    assert headers["x-request-id"]
    return float(headers["retry-after"])


@tier("requests")
def test_waiting_as_long_as_a_refusal_says_is_enough_for_requests(client: openai.OpenAI) -> None:
    error = use_up(client, max_tokens=1)
    for _ in range(3):
        time.sleep(assert_says_when(error, "requests"))
        assert client.chat.completions.create(**ASK, max_tokens=1).usage
        error = use_up(client, max_tokens=1)


@tier("tokens")
def test_waiting_as_long_as_a_refusal_says_is_enough_for_tokens(client: openai.OpenAI) -> None:
    error = use_up(client, max_tokens=40)
    time.sleep(assert_says_when(error, "tokens"))
    assert client.chat.completions.create(**ASK, max_tokens=40).usage


@tier("requests")
def test_the_clients_own_retries_suffice(client: openai.OpenAI) -> None:
    use_up(client, max_tokens=1)
    patient = client.with_options(max_retries=2)
    assert patient.chat.completions.create(**ASK, max_tokens=1).usage
    use_up(client, max_tokens=1)
    assert list(patient.chat.completions.create(**ASK, max_tokens=1, stream=True))
    assert patient.completions.create(model=SIMULATED, prompt="Hi", max_tokens=1).usage


@tier("requests")
def test_embeddings_are_limited_apart(client: openai.OpenAI, limited: Server) -> None:
    use_up(client, max_tokens=1)
    model = next(m.id for m in client.models.list() if m.id != SIMULATED)
    answer = client.embeddings.with_raw_response.create(model=model, input="Hi")
    assert answer.headers["x-ratelimit-limit-requests"] == "20"
    assert int(answer.headers["x-ratelimit-remaining-requests"]) == 19
    error = refusal_of(lambda: client.embeddings.create(model=model, input="Hi"))
    time.sleep(assert_says_when(error, "requests"))
    assert client.embeddings.create(model=model, input="Hi").data


@tier("tokens")
def test_a_cost_that_can_never_pass_is_a_mistake_that_names_max_tokens(client: openai.OpenAI) -> None:
    patient = client.with_options(max_retries=5)
    with pytest.raises(openai.BadRequestError, match="can never let it through") as caught:
        patient.chat.completions.create(**ASK, max_tokens=500)
    assert (caught.value.param, sent(client)) == ("max_tokens", 1)
    assert client.chat.completions.create(**ASK, max_tokens=10).usage


@tier("poor")
def test_a_budget_refuses_before_it_is_passed_and_is_not_retried(client: openai.OpenAI) -> None:
    assert client.chat.completions.create(**ASK, max_tokens=50).usage
    before = sent(client)
    with pytest.raises(openai.RateLimitError) as caught:
        client.with_options(max_retries=5).chat.completions.create(**ASK, max_tokens=51)
    assert (caught.value.code, caught.value.type) == ("insufficient_quota", "insufficient_quota")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert sent(client) == before + 1
    assert client.chat.completions.create(**ASK, max_tokens=50).usage, "what is left may be spent"
    budget = client.get("/usage", cast_to=httpx.Response).json()["budget"]
    assert budget == {"limit": 100, "spent": 100}


@tier("streams")
def test_a_stream_holds_its_place_until_its_client_goes(client: openai.OpenAI) -> None:
    streams = [client.chat.completions.create(**ASK, stream=True) for _ in range(2)]
    with pytest.raises(openai.RateLimitError, match="2 streams at a time") as caught:
        client.chat.completions.create(**ASK)
    assert caught.value.response.headers["retry-after"] == "1"
    streams[0].close()

    def free() -> bool:
        try:
            return bool(client.chat.completions.create(**ASK, max_tokens=1).id)
        except openai.RateLimitError:
            return False

    until(free, 5, "the end of a stream whose client has gone")
    assert len(list(streams[1])) > 50, "the other went on"


@tier("requests")
def test_headers_that_claim_to_be_another_change_nothing(client: openai.OpenAI, limited: Server) -> None:
    error = use_up(client, max_tokens=1)
    assert_says_when(error, "requests")
    spoofed = {
        "OpenAI-Organization": "local", "OpenAI-Project": "proj_x", "X-Forwarded-For": "10.1.2.3", "Forwarded": "for=10.1.2.3",
        "X-Real-IP": "10.1.2.3", "X-Tenant": "local", "X-Ratelimit-Limit-Requests": "100000",
    }  # fmt: skip
    refusal_of(lambda: client.chat.completions.create(**ASK, max_tokens=1, extra_headers=spoofed))
    with limited.client() as other:
        assert other.get("/v1/usage").json()["data"] == []


@tier("some")
def test_a_model_that_ones_tier_does_not_have_is_missing_everywhere(client: openai.OpenAI, limited: Server) -> None:
    assert list(client.models.list()) == []
    for call in (
        lambda: client.models.retrieve(SIMULATED),
        lambda: client.chat.completions.create(**ASK),
        lambda: client.chat.completions.create(**ASK, stream=True),
        lambda: client.completions.create(model=SIMULATED, prompt="Hi"),
        lambda: client.embeddings.create(model="all-minilm-l6-v2", input="Hi"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            call()
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with httpx.Client(base_url=limited.url) as browser:
        assert browser.post("/api/session", json={"key": client.api_key}).status_code == 204
        assert browser.get("/api/models").json()["data"] == []


def test_a_key_may_be_for_some_models(limited: Server) -> None:
    for models, found in ((("all-minilm-l6-v2",), 404), ((SIMULATED,), 200)):
        key = new_key(limited.home, "some-keys", models=models)
        with httpx.Client(base_url=limited.url, headers={"authorization": f"Bearer {key}"}) as http:
            assert [m["id"] for m in http.get("/v1/models").json()["data"]] == list(models)
            assert http.post("/v1/chat/completions", json=ASK | {"max_tokens": 1}).status_code == found


def test_tiers_change_without_a_restart(limited: Server) -> None:
    path = limited.home / "tiers.toml"
    key = new_key(limited.home, "changing", tier="streams", tiers=path)
    with httpx.Client(base_url=limited.url, headers={"authorization": f"Bearer {key}"}) as http:

        def told() -> str | None:
            answer = http.post("/v1/chat/completions", json=ASK | {"max_tokens": 1})
            return answer.headers.get("x-ratelimit-limit-requests")

        assert told() is None
        wanted = TIERS.replace("concurrent_streams = 2", "concurrent_streams = 2, requests_per_minute = 500")
        path.write_text(wanted)
        try:
            until(lambda: told() == "500", 15, "the new tiers")
            path.write_text("[streams]\nweight = 0\n")
            time.sleep(3)
            assert told() == "500", "a version with a mistake is not taken"
        finally:
            path.write_text(TIERS)
