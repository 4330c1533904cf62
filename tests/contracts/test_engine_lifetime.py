"""What `Engine` promises of a generation's life: it ends when nobody waits, and what it used is known all the same."""

import asyncio
import time
from contextlib import aclosing

import pytest

from services.common import messages as m
from services.common.errors import Conflict, Overloaded
from tests.contracts.conftest import REAL_ENGINES
from tests.support.engines import MODEL, WINDOW, Subject, ask, assert_whole, collect, until_idle

pytestmark = pytest.mark.asyncio(loop_scope="session")

CANCELLED_S = 0.5
"""How long an engine may go on with what nobody waits for (SEMANTICS: Cancellation)."""


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_what_nobody_waits_for_stops_within_half_a_second(subject: Subject, how: str, n: int) -> None:
    # Other work on the machine may steal the time of one try, but not of three.
    took = [await seconds_to_stop(subject, how, n)]
    while min(took) >= CANCELLED_S and len(took) < 3:
        took.append(await seconds_to_stop(subject, how, n))
    assert min(took) < CANCELLED_S
    assert (await subject.engine.load()).running == 0


async def seconds_to_stop(subject: Subject, how: str, n: int) -> float:
    request = ask("Count to ten thousand.", max_tokens=900, n=n, logit_bias={2: -100}, temperature=1)
    started, close = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async with aclosing(subject.engine.generate(request)) as stream:
            async for _ in stream:
                started.set()
                if how == "closed":
                    await close.wait()
                    return

    task = asyncio.create_task(read())
    await started.wait()
    assert await subject.running() > 0
    stopped = time.monotonic()
    close.set() if how == "closed" else task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until_idle(subject.running)
    return time.monotonic() - stopped


async def test_a_prefill_that_nobody_waits_for_is_given_up(subject: Subject) -> None:
    request = ask("Nobody waits for the reading of this. " * 55, max_tokens=1)
    task = asyncio.create_task(collect(subject.engine, request))
    while not await subject.running() and not task.done():
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until_idle(subject.running)
    if subject.hears_us_while_reading:
        usage = (await collect(subject.engine, request)).usage()
        assert usage.cached_tokens < usage.prompt_tokens / 2, "the engine had read on"


async def test_load_counts_what_is_running(subject: Subject) -> None:
    assert (await subject.engine.load()) == m.Load(healthy=True, running=0)
    async with aclosing(subject.engine.generate(ask(max_tokens=200))) as stream:
        await anext(stream)
        assert (await subject.engine.load()) == m.Load(healthy=True, running=1)
    await until_idle(subject.running)


async def test_many_generations_at_once_all_finish(subject: Subject) -> None:
    requests = [ask(f"Say {i}.", max_tokens=6) for i in range(8)]
    for answer in await asyncio.gather(*(collect(subject.engine, r) for r in requests)):
        assert_whole(answer)
        assert answer.text()


async def test_capabilities_name_the_model_and_what_it_can_do(subject: Subject) -> None:
    c = await subject.engine.capabilities()
    assert c == m.Capabilities(
        model=MODEL, context_window=WINDOW, tools=True, structured_output=True, logprobs=True, continue_last=True
    )


@pytest.mark.parametrize("subject", ["http", *REAL_ENGINES], indirect=True)
async def test_a_dead_engine_is_unhealthy_and_its_generations_fail(subject: Subject) -> None:
    assert subject.dead is not None
    load = await subject.dead.load()
    assert load.healthy is False
    assert load.detail
    with pytest.raises(Overloaded):
        await collect(subject.dead, ask())


async def test_the_prefill_is_told_before_the_first_token(subject: Subject) -> None:
    request = ask("How long is the prompt that this makes?", max_tokens=2)
    first: m.Event | None = None
    told = []
    async with aclosing(subject.engine.generate(request)) as stream:
        async for batch in stream:
            for event in batch:
                first = first or event
                if isinstance(event, m.Prefilled):
                    told.append(event.tokens)
                elif isinstance(event, m.Usage):
                    assert told[-1] in (event.prompt_tokens, m.WHOLE_PROMPT)
    assert isinstance(first, m.Prefilled)
    assert told == sorted(told)


@pytest.mark.parametrize("n", [1, 3])
async def test_a_settlement_of_a_whole_answer_is_its_usage(subject: Subject, n: int) -> None:
    request = ask(max_tokens=5, n=n, temperature=1, request_id=f"whole-{n}")
    usage = (await collect(subject.engine, request)).usage()
    for _ in range(2):
        spent = await subject.engine.settle(request.request_id)
        assert spent
        assert (spent.prompt_tokens, spent.completion_tokens) == (usage.prompt_tokens, usage.completion_tokens)
    with pytest.raises(Conflict):
        await collect(subject.engine, request)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("most", [1, 4, 9])
async def test_a_settlement_of_what_nobody_read_to_its_end_is_what_it_used(subject: Subject, n: int, most: int) -> None:
    fields = {"n": n, "logit_bias": {2: -100}, "temperature": 1}
    whole = (await collect(subject.engine, ask(max_tokens=1, **fields))).usage()
    request = ask(max_tokens=300, request_id=f"part-{n}-{most}", **fields)
    seen = batches = 0
    async with aclosing(subject.engine.generate(request)) as stream:
        async for batch in stream:
            seen += sum(e.tokens for e in batch if isinstance(e, m.TextDelta))
            batches += 1
            if batches > most:
                break
    spent = await subject.engine.settle(request.request_id)
    assert spent
    assert seen <= spent.completion_tokens < 300 * n
    assert spent.prompt_tokens in (whole.prompt_tokens, m.WHOLE_PROMPT)
    assert await subject.engine.settle(request.request_id) == spent
    with pytest.raises(Conflict):
        await collect(subject.engine, request)
    await until_idle(subject.running)


async def test_a_settlement_of_a_prefill_that_was_given_up_is_no_more_than_the_prompt(subject: Subject) -> None:
    request = ask("Nobody waits for the reading of that. " * 55, max_tokens=1, request_id="prefill")
    task = asyncio.create_task(collect(subject.engine, request))
    while not await subject.running() and not task.done():
        await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    spent = await subject.engine.settle(request.request_id)
    whole = (await collect(subject.engine, ask("Nobody waits for the reading of that. " * 55, max_tokens=1))).usage()
    assert spent
    assert spent.completion_tokens <= 1
    assert m.WHOLE_PROMPT <= spent.prompt_tokens <= whole.prompt_tokens


async def test_what_was_settled_before_it_came_is_unknown_and_does_not_run(subject: Subject) -> None:
    assert await subject.engine.settle("never") is None
    with pytest.raises(Conflict):
        await collect(subject.engine, ask(request_id="never", max_tokens=1))
    assert (await subject.engine.load()).running == 0
