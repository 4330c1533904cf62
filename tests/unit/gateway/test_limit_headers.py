"""What a client learns of its limits: x-ratelimit headers on every answer that was counted, and a Retry-After that is right."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.exchange import duration, error_headers, limit_headers
from inference.engines.simulated import SimulatedEngine
from services.common.errors import EngineFailed, InvalidRequest, Overloaded, QuotaExceeded, RateLimited
from services.common.messages import Admitted, Finished, RateState, TextDelta, Usage
from services.ledger.prices import PriceTable
from tests.unit.gateway.driving import Exchanged, Gateway, gateway
from tests.unit.services.chat.parts import ScriptedEngine, until

TIGHT = """
[tight]
max_output_tokens = 50
[tight.limits.chat]
organisation = { requests_per_minute = 3, tokens_per_minute = 600, concurrent_streams = 2 }
"""
POOR = "[poor]\nmonthly_budget = 20\n[poor.limits.chat]\norganisation = { requests_per_minute = 60 }"
REQUESTS = [f"x-ratelimit-{name}-requests" for name in ("limit", "remaining", "reset")]
TOKENS = [f"x-ratelimit-{name}-tokens" for name in ("limit", "remaining", "reset")]
_PARTS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?|(\d+)ms")

Open = Callable[..., AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def tight(template: Path, tmp_path: Path) -> Open:
    """A gateway whose organisation has a tier of its own."""

    def opened(
        engine: SimulatedEngine, tiers: str = TIGHT, tier: str = "tight"
    ) -> AbstractAsyncContextManager[Gateway]:
        path = tmp_path / "tiers.toml"
        path.write_text(tiers)
        return gateway(template, tmp_path, engine, tiers=path, tier=tier)

    return opened


def milliseconds(text: str) -> int:
    found = _PARTS.fullmatch(text)
    assert found, text
    hours, minutes, seconds, ms = found.groups()
    return int(ms) if ms else round((int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(seconds or 0)) * 1000)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0ms"), (0.0001, "1ms"), (0.02, "20ms"), (0.9991, "1s"), (1, "1s"), (1.5, "1.5s"), (59.9991, "1m0s"),
        (60, "1m0s"), (360, "6m0s"), (61.25, "1m1.25s"), (3600, "1h0m0s"), (86_400, "24h0m0s"), (3661.5, "1h1m1.5s"),
    ],
)  # fmt: skip
def test_durations_are_written_as_the_api_writes_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text.encode()


@given(st.floats(0, 10**6))
def test_a_duration_is_never_shorter_than_it_was(seconds: float) -> None:
    assert milliseconds(duration(seconds).decode()) == ceil(seconds * 1000)


def test_only_what_is_limited_is_told() -> None:
    state = RateState(10, 3, 1.5)
    assert limit_headers(Admitted()) == []
    assert [name.decode() for name, _ in limit_headers(Admitted(requests=state))] == REQUESTS
    assert dict(limit_headers(Admitted(state, RateState(7, 0, 60)))) == {
        b"x-ratelimit-limit-requests": b"10", b"x-ratelimit-remaining-requests": b"3", b"x-ratelimit-reset-requests": b"1.5s",
        b"x-ratelimit-limit-tokens": b"7", b"x-ratelimit-remaining-tokens": b"0", b"x-ratelimit-reset-tokens": b"1m0s",
    }  # fmt: skip


@pytest.mark.parametrize(("seconds", "header"), [(0, b"1"), (0.2, b"1"), (1, b"1"), (1.01, b"2"), (59.5, b"60")])
def test_retry_after_is_in_whole_seconds_and_never_too_few(seconds: float, header: bytes) -> None:
    assert dict(error_headers(RateLimited("wait", retry_after=seconds)))[b"retry-after"] == header


def test_what_waiting_does_not_mend_says_that_it_does_not() -> None:
    assert error_headers(QuotaExceeded("no")) == [(b"x-should-retry", b"false")]
    assert error_headers(InvalidRequest("no")) == []
    assert error_headers(Overloaded("busy")) == []


def limits(x: Exchanged) -> dict[str, str]:
    """Each is there once."""
    found = [(k.decode(), v.decode()) for k, v in x.sent[0]["headers"] if k.startswith(b"x-ratelimit")]
    assert len(dict(found)) == len(found)
    return dict(found)


@pytest.mark.parametrize("how", ["stream", "whole", "completion"])
async def test_what_is_answered_tells_what_is_left(how: str, tight: Open) -> None:
    async with tight(SimulatedEngine()) as edge:
        if how == "completion":
            x = edge.call("/v1/completions", {"model": "simulated", "prompt": "a b", "max_tokens": 8})
        else:
            x = edge.chat(stream=how == "stream", max_tokens=8)
        await x.done()
        assert x.status == 200
        told = limits(x)
        assert list(told) == REQUESTS + TOKENS
        assert (told["x-ratelimit-limit-requests"], told["x-ratelimit-remaining-requests"]) == ("3", "2")
        assert (told["x-ratelimit-limit-tokens"], told["x-ratelimit-remaining-tokens"]) == ("600", "590")
        assert 19_000 < milliseconds(told["x-ratelimit-reset-requests"]) <= 20_000
        assert 0 < milliseconds(told["x-ratelimit-reset-tokens"]) <= 1000


async def test_a_refusal_tells_when_to_come_back(tight: Open) -> None:
    async with tight(SimulatedEngine()) as edge:
        for _ in range(3):
            await edge.chat(max_tokens=1).done()
        x = await edge.chat(max_tokens=1, stream=True).done()
        assert x.status == 429
        assert (x.error["type"], x.error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
        assert limits(x)["x-ratelimit-remaining-requests"] == "0"
        assert 19 <= int(x.headers["retry-after"]) <= 20
        assert f"Try again in {x.headers['retry-after']} s" in x.error["message"]
        assert "x-should-retry" not in x.headers
        assert "x-request-id" in x.headers


async def test_a_cost_that_can_never_pass_is_a_mistake_that_names_what_to_lower(tight: Open) -> None:
    tiers = TIGHT.replace("max_output_tokens = 50", "max_output_tokens = 5000")
    async with tight(SimulatedEngine(), tiers) as edge:
        for fields in ({"max_tokens": 700}, {"max_completion_tokens": 300, "n": 2}):
            x = await edge.chat(**fields).done()
            assert (x.status, x.error["param"], x.error["code"]) == (400, "max_tokens", "request_exceeds_limit")
            assert "retry-after" not in x.headers
        assert (await edge.chat(max_tokens=400).done()).status == 200


async def test_a_used_up_budget_is_no_matter_of_waiting(tight: Open, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text('[prices.chat."*"]\noutput = 1_000_000')
    async with tight(SimulatedEngine(), POOR, "poor") as edge:
        edge.parts.meter.prices = PriceTable(tmp_path / "prices.toml")
        assert (await edge.chat(max_tokens=20).done()).status == 200
        x = await edge.chat(max_tokens=1).done()
        assert x.status == 429
        assert (x.error["type"], x.error["code"]) == ("insufficient_quota", "insufficient_quota")
        assert x.headers["x-should-retry"] == "false"
        assert "retry-after" not in x.headers


async def test_what_fails_after_it_was_let_in_tells_its_limits_too(tight: Open) -> None:
    engine = ScriptedEngine()
    async with tight(engine) as edge:
        for stream in (True, False):
            x = edge.chat(stream=stream)
            engine.fail(EngineFailed("no"))
            await x.done()
            assert x.status == 503
            assert list(limits(x)) == REQUESTS + TOKENS


async def test_a_stream_that_is_open_takes_a_place_until_its_client_leaves(tight: Open) -> None:
    engine = ScriptedEngine()
    tiers = TIGHT.replace("requests_per_minute = 3", "requests_per_minute = 100")
    async with tight(engine, tiers) as edge:
        open_ones = [edge.chat(stream=True) for _ in range(2)]
        await until(lambda: engine.running == 2)
        x = await edge.chat().done()
        assert (x.status, x.headers["retry-after"]) == (429, "1")
        assert "2 streams at a time" in x.error["message"]
        open_ones[0].leave()
        await open_ones[0].done()
        late = edge.chat()
        await until(lambda: engine.running == 2)
        for _ in range(2):
            engine.say(TextDelta(0, "Hi"), Finished(0, "stop"), Usage(1, 1))
            engine.end()
        for each in (open_ones[1], late):
            assert (await each.done()).status == 200


async def test_where_nothing_is_limited_there_are_no_headers(tight: Open) -> None:
    async with tight(SimulatedEngine(), "[tight]\n") as edge:
        assert limits(await edge.chat(max_tokens=1).done()) == {}


async def test_requests_that_run_nothing_cost_nothing(tight: Open) -> None:
    async with tight(SimulatedEngine()) as edge:
        for body in ({"messages": []}, {"max_tokens": 0}, {"model": "none"}, {"temperature": 99}):
            x = await edge.chat(**body).done()
            assert x.status in (400, 404)
            assert limits(x) == {}
        assert limits(await edge.chat(max_tokens=1).done())["x-ratelimit-remaining-requests"] == "2"


FEW = '[tight]\nmodels = ["small-*"]'


async def test_a_model_that_ones_tier_does_not_have_is_missing_everywhere(tight: Open) -> None:
    async with tight(SimulatedEngine(), FEW) as edge:
        mine, missing = await edge.chat().done(), await edge.chat(model="missing").done()
        assert (mine.status, mine.error["code"], mine.error["param"]) == (404, "model_not_found", "model")
        assert mine.error["message"].replace("simulated", "missing") == missing.error["message"]
        assert (await edge.call("/v1/models", method="GET").done()).json["data"] == []
        assert (await edge.call("/v1/models/simulated", method="GET").done()).status == 404
