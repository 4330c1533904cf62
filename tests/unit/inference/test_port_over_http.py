"""The engine port over HTTP: api.py, client.py and the codec between them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import httpx
import pytest

from inference.api import create_app
from services.common import messages as m
from services.common.errors import (
    AntiphonError,
    ContextLengthExceeded,
    EngineFailed,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
)
from tests.support.engines import ask, broken, collect, over_http, until_idle

ERRORS = [
    InvalidRequest("no", param="temperature", code="out_of_range"),
    ContextLengthExceeded("too long", param="messages"),
    EngineFailed("gone", retry_after=2.5),
    Overloaded("busy"),
    ModelNotFound.named("x"),
]


class Failing:
    """Says some words, then fails; every other method fails at once."""

    def __init__(self, error: BaseException | None, words: int = 0):
        self.error, self.words, self.open = error, words, 0

    async def generate(self, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
        self.open += 1
        try:
            for i in range(self.words):
                await asyncio.sleep(0.001)
                yield [m.TextDelta(0, f"{i} ")]
            if self.error:
                raise self.error
        finally:
            self.open -= 1

    async def tokenize(self, request: m.TokenizeRequest) -> m.Tokens:
        assert self.error
        raise self.error

    async def capabilities(self) -> m.Capabilities:
        assert self.error
        raise self.error

    async def load(self) -> m.Load:
        assert self.error
        raise self.error

    async def settle(self, request_id: str) -> m.Spent | None:
        assert self.error
        raise self.error


def same(raised: AntiphonError, meant: AntiphonError) -> bool:
    return type(raised) is type(meant) and vars(raised) == vars(meant)


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
async def test_an_error_arrives_as_what_it_was(error: AntiphonError) -> None:
    async with over_http(Failing(error)) as client:
        with pytest.raises(AntiphonError) as raised:
            await client.tokenize(m.TokenizeRequest(model="x", text=""))
        assert same(raised.value, error)


@pytest.mark.parametrize("words", [0, 3])
@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
async def test_an_error_in_a_stream_arrives_after_what_was_said(error: AntiphonError, words: int) -> None:
    async with over_http(Failing(error, words)) as client:
        answer, raised = await broken(client, ask())
        assert same(raised, error)
        assert len(answer.events) == words


async def test_a_fault_of_the_service_does_not_tell_its_cause() -> None:
    async with over_http(Failing(RuntimeError("the password is 1234"))) as client:
        with pytest.raises(InternalError) as raised:
            await collect(client, ask())
        assert "1234" not in raised.value.message


async def test_load_reports_a_failure_and_does_not_raise() -> None:
    async with over_http(Failing(EngineFailed("gone"))) as client:
        assert await client.load() == m.Load(healthy=False, detail="gone")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_dropping_the_client_closes_the_iterator_behind_the_server(how: str) -> None:
    engine = Failing(None, words=100_000)

    async def open_streams() -> int:
        return engine.open

    async with over_http(engine) as client:
        stream = client.generate(ask())
        await anext(stream)
        assert engine.open == 1
        if how == "closed":
            await stream.aclose()
        else:
            task = asyncio.create_task(collect(client, ask()))
            while engine.open < 2:
                await asyncio.sleep(0.001)
            task.cancel()
            await stream.aclose()
        async with asyncio.timeout(0.5):
            await until_idle(open_streams)


@pytest.mark.parametrize("text", ["\n\ndata: {}\n\n", "\r\nevent: end\r\n", "\u2028\u0085\x00", "é😀" * 1000])
async def test_no_text_can_break_the_framing(text: str) -> None:
    class Saying(Failing):
        async def generate(self, request: m.GenerationRequest) -> AsyncGenerator[Sequence[m.Event], None]:
            yield [m.TextDelta(0, text), m.Finished(0, "stop"), m.Usage(1, 1)]

    async with over_http(Saying(None)) as client:
        assert (await collect(client, ask())).text() == text


async def test_a_message_that_is_not_one_is_an_invalid_request() -> None:
    transport = httpx.ASGITransport(create_app(Failing(None)))
    async with httpx.AsyncClient(transport=transport, base_url="http://engine") as client:
        for body in (b"", b"{", b"[]", b'{"model": 1}', b"\xff"):
            response = await client.post("/generate", content=body)
            assert (response.status_code, response.json()["kind"]) == (400, "InvalidRequest")
