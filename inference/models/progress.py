"""How a pull shows itself: a bar on a terminal, a line at each tenth elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars


class Progress(Protocol):
    def note(self, text: str) -> None: ...

    def update(self, file: str, done: int, total: int) -> None:
        """`done` of `total` bytes of that file are here. Called often, and from any thread."""
        ...


class Silent:
    def note(self, text: str) -> None: ...

    def update(self, file: str, done: int, total: int) -> None: ...


class Lines:
    def __init__(self, console: Console):
        self._console = console
        self._tenths: dict[str, int] = {}

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, file: str, done: int, total: int) -> None:
        tenth = min(done, total) * 10 // max(total, 1)
        if tenth != self._tenths.get(file, 0):
            self.note(f"{file}: {tenth * 10} % of {decimal(total)}")
        self._tenths[file] = tenth


class Drawn:
    def __init__(self, bars: Bars):
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def note(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def update(self, file: str, done: int, total: int) -> None:
        if file not in self._tasks:
            self._tasks[file] = self._bars.add_task(file, total=total)
        self._bars.update(self._tasks[file], completed=done)


@contextmanager
def shown(console: Console) -> Iterator[Progress]:
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console) as bars:
        yield Drawn(bars)
