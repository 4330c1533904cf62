"""The ledger as a test reaches it, usage to put in it, and a process that uses its journal until it is killed."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from services.common import usage_messages as u
from services.common.errors import Overloaded
from services.common.sql import migrate, open_database
from services.common.usage_ports import Ledger
from services.ledger.api import create_app
from services.ledger.client import LedgerClient
from services.ledger.journal import FileJournal
from services.ledger.service import LedgerService
from services.ledger.store import MIGRATIONS, LedgerStore
from services.ledger.writer import LedgerWriter
from tests.support.http import served


def used(id: str, at: float = 1_000.0, **fields: Any) -> u.UsageRecord:
    return u.UsageRecord(id=id, at=at, **{"tenant": "org", "model": "m"} | fields)


def begun(id: str, **fields: Any) -> u.OpenUsage:
    return u.OpenUsage(record=used(id, **fields), reservation=f"res_{id}")


def query(**fields: Any) -> u.UsageQuery:
    return u.UsageQuery(**{"tenant": "org", "start": 0.0, "end": 4e9, "bucket": "all"} | fields)


class MemoryLedger:
    """Keeps what it is given, or is away."""

    def __init__(self) -> None:
        self.kept: dict[str, u.UsageRecord] = {}
        self.calls = 0
        self.away = False

    async def record(self, records: Sequence[u.UsageRecord]) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        if self.away:
            raise Overloaded("The ledger is away.")
        for record in records:
            self.kept.setdefault(record.id, record)

    async def spent(self, query: u.UsageQuery) -> int:
        return sum(record.cost for record in self.kept.values())

    async def totals(self, query: u.UsageQuery) -> Sequence[u.UsageTotal]:
        return ()

    async def records(self, query: u.UsageQuery) -> u.RecordPage:
        return u.RecordPage(tuple(self.kept.values()), False)


@asynccontextmanager
async def opened(place: str, database_url: str) -> AsyncIterator[Ledger]:
    engine = open_database(database_url)
    await migrate(engine, "ledger", MIGRATIONS)
    service = LedgerService(LedgerStore(engine))
    if place == "http":
        async with served(create_app(service)) as (url, session):
            yield LedgerClient(url, session)
    else:
        yield service
    await engine.dispose()


@dataclass
class Promised:
    """What a killed process has said of one generation, before and after each step."""

    begun: bool = False
    counted: int = 0
    counting: int = 0
    ending: bool = False
    ended: bool = False


@dataclass
class Witness:
    """Lines that processes write to `path` without buffering; the last of each may be torn."""

    path: Path
    said: dict[str, Promised] = field(default_factory=dict)

    def read(self) -> dict[str, Promised]:
        if not self.path.exists():
            return {}
        for line in self.path.read_text().splitlines():
            if len(words := line.split()) < 3:
                continue
            step, id, number = words
            of = self.said.setdefault(id, Promised())
            if step in ("counted", "counting"):
                setattr(of, step, max(getattr(of, step), int(number)))
            else:
                setattr(of, step, True)
        return self.said


class _Busy:
    def __init__(self, journal: FileJournal, said: int, seed: int):
        self._journal = journal
        self._said = said
        self._random = random.Random(seed)
        self._seed = seed
        self._made = 0
        self._open: list[list[Any]] = []

    def step(self) -> None:
        """Begin, count or end one generation, and say so."""
        chance = self._random.random()
        if not self._open or (chance < 0.2 and len(self._open) < 200):
            id = f"g{self._seed}-{self._made}"
            self._made += 1
            self._say("begins", id)
            self._open.append([id, self._journal.begin(begun(id)), 0])
            self._say("begun", id)
            return
        number = self._random.randrange(len(self._open))
        id, slot, tokens = self._open[number]
        if chance < 0.8:
            tokens += self._random.choice((1, 7, 255, 65_536))
            self._say("counting", id, tokens)
            self._journal.count(slot, tokens)
            self._say("counted", id, tokens)
            self._open[number][2] = tokens
        else:
            self._say("ending", id)
            self._journal.end(slot, used(id, output_tokens=tokens))
            self._say("ended", id)
            del self._open[number]

    def _say(self, step: str, id: str, number: int = 0) -> None:
        os.write(self._said, f"{step} {id} {number}\n".encode())


def use_journal(folder: str, testimony: str, seed: int) -> None:
    """Until it is killed."""
    busy = _Busy(FileJournal(Path(folder)), _witness(testimony), seed)
    while True:
        busy.step()


def use_ledger(folder: str, testimony: str, seed: int, database_url: str) -> None:
    """Recovers, then uses the journal while it is written to a ledger; until it is killed."""
    asyncio.run(_use_ledger(Path(folder), _witness(testimony), seed, database_url))


def _witness(testimony: str) -> int:
    said = os.open(testimony, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(said, b"\n")
    return said


async def _use_ledger(folder: Path, said: int, seed: int, database_url: str) -> None:
    journal = FileJournal(folder)
    end_unfinished(journal)
    busy = _Busy(journal, said, seed)
    async with LedgerWriter(journal, LedgerService(LedgerStore(open_database(database_url))), interval=0.002):
        while True:
            for _ in range(20):
                busy.step()
            await asyncio.sleep(0)


def end_unfinished(journal: FileJournal) -> list[u.UsageRecord]:
    ended = []
    for slot, usage in journal.unfinished():
        record = msgspec.structs.replace(usage.record, outcome="crashed")
        journal.end(slot, record)
        ended.append(record)
    return ended


def ended_in(journal: FileJournal) -> list[u.UsageRecord]:
    """All that has ended and that no ledger has."""
    journal.rotate()
    return [record for segment in journal.closed() for record in journal.read(segment).records]


def check(said: dict[str, Promised], found: Iterable[u.UsageRecord]) -> None:
    """What was found, recovered ones included, is what was said: all of it, and nothing twice."""
    records = list(found)
    by_id = {record.id: record for record in records}
    assert len(by_id) == len(records)
    assert by_id.keys() <= said.keys()
    assert {id for id, of in said.items() if of.begun} <= by_id.keys()
    for id, record in by_id.items():
        of = said[id]
        if of.ended:
            assert record.outcome == "finished", id
        if record.outcome == "finished":
            assert of.ending, id
            assert record.output_tokens == of.counted, id
        else:
            assert record.output_tokens in (of.counted, of.counting), id
