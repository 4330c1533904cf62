"""Real processes, killed with SIGKILL at random points of their work."""

import multiprocessing
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from services.common.sql import migrate, open_database
from services.ledger.journal import FileJournal
from services.ledger.service import LedgerService
from services.ledger.store import MIGRATIONS, LedgerStore
from services.ledger.writer import LedgerWriter
from tests.support.ledger import (
    Witness,
    check,
    end_unfinished,
    ended_in,
    query,
    use_journal,
    use_ledger,
)

Kill = Callable[..., None]


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.ledger"])
    return context


@pytest.fixture
def killed_after(processes: ForkServerContext) -> Kill:
    """Run a function in a process of its own; kill it some time after it has begun."""

    def run(work: Callable[..., None], after: float, testimony: Path, *arguments: Any) -> None:
        before = testimony.stat().st_size if testimony.exists() else 0
        process = processes.Process(target=work, args=arguments, daemon=True)
        process.start()
        try:
            deadline = time.monotonic() + 60
            while not testimony.exists() or testimony.stat().st_size == before:
                assert process.is_alive()
                assert time.monotonic() < deadline
                time.sleep(0.001)
            time.sleep(after)
        finally:
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL

    return run


def test_whatever_the_moment_nothing_is_lost_and_nothing_comes_twice(killed_after: Kill, tmp_path: Path) -> None:
    chance = random.Random(7)
    ended = open_ = 0
    for seed in range(30):
        folder, testimony = tmp_path / f"journal{seed}", tmp_path / f"said{seed}"
        killed_after(use_journal, chance.uniform(0, 0.03), testimony, str(folder), str(testimony), seed)
        journal = FileJournal(folder)
        ended += len(ended_in(journal))
        open_ += len(end_unfinished(journal))
        check(Witness(testimony).read(), ended_in(journal))
        journal.close()
    assert ended > 100
    assert open_ > 100


async def test_a_ledger_adds_up_over_many_deaths_of_its_writer(killed_after: Kill, tmp_path: Path) -> None:
    folder, testimony = tmp_path / "journal", tmp_path / "said"
    url = f"sqlite+aiosqlite:///{tmp_path / 'ledger.db'}"
    engine = open_database(url)
    await migrate(engine, "ledger", MIGRATIONS)
    ledger = LedgerService(LedgerStore(engine))
    chance = random.Random(11)
    for seed in range(20):
        killed_after(use_ledger, chance.uniform(0, 0.15), testimony, str(folder), str(testimony), seed, url)
    assert await ledger.totals(query())
    journal = FileJournal(folder)
    end_unfinished(journal)
    await LedgerWriter(journal, ledger).flush()
    assert journal.backlog == 0
    journal.close()
    page = await ledger.records(query(limit=10_000))
    found = list(page.items)
    while page.more:
        page = await ledger.records(query(limit=10_000, after=found[-1].id))
        found += page.items
    check(Witness(testimony).read(), found)
    assert {record.outcome for record in found} == {"finished", "crashed"}
    await engine.dispose()
