"""What the commands on accounts share. Exit codes: 0 done, 1 refused or failed, 2 the command cannot be understood."""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import structlog
import typer
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from deploy.settings import ServeSettings
from services.accounts.ports import AccountPorts
from services.common.account_messages import Member, Organisation
from services.common.errors import AntiphonError, InvalidRequest, NotFound, Overloaded
from services.common.usage_ports import Ledger, Tiers

ACTOR = "cli"
LOCAL = "local"
T = TypeVar("T")
Home = Annotated[Path | None, typer.Option(help="The data folder of the installation; or set ANTIPHON_HOME.")]
Org = Annotated[str, typer.Option(metavar="ID", help="The organisation; `local` is the installation's own.")]
AnyOrg = Annotated[str | None, typer.Option(metavar="ID", help="Look in this organisation only.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: a list of objects, as in the admin API.")]
_UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile("([1-9][0-9]{0,5})([mhdw])")


@dataclass(frozen=True)
class Opened:
    """An installation that a command works on, whether a server runs on it or not."""

    accounts: AccountPorts
    tiers: Tiers
    ledger: Ledger


def run(home: Path | None, do: Callable[[Opened], Awaitable[T]], *, new: bool = False) -> T:
    """What `do` gives. new: the data folder is made if it is not there, rather than taken for a slip of the pen."""
    with failures(), _quiet():
        return asyncio.run(_run(home, do, new))


async def _run(home: Path | None, do: Callable[[Opened], Awaitable[T]], new: bool) -> T:
    from deploy.installation import Installation  # takes a second, which `--help` need not wait for
    from services.ledger.service import LedgerService
    from services.ledger.store import LedgerStore

    given: dict[str, Any] = {} if home is None else {"home": home}
    settings = ServeSettings(**given)
    if not new and not (settings.home / "pepper").exists():
        raise NotFound(f"There is no installation in {settings.home} yet. `antiphon serve` makes one.")
    installation = Installation(settings)
    try:
        accounts = await installation.open()
        return await do(Opened(accounts, installation.tiers, LedgerService(LedgerStore(installation.database))))
    finally:
        await installation.close()


@contextmanager
def failures() -> Iterator[None]:
    """What is refused is told in one line."""
    try:
        yield
    except AntiphonError as e:
        cause = f" ({_first_line(e.__cause__)})" if isinstance(e, Overloaded) and e.__cause__ else ""
        _fail(f"{e.message}{cause}")
    except Exception as e:
        if not hasattr(e, "orig"):  # SQLAlchemy's name for the driver's error
            raise
        _fail(f"The database cannot be used: {_first_line(e)}.")


def _fail(message: str) -> NoReturn:
    typer.echo(f"antiphon: {message}", err=True)
    raise typer.Exit(1) from None


def _first_line(error: BaseException) -> str:
    """Of the driver's own words: around them are a statement and a link."""
    return next(iter(str(getattr(error, "orig", None) or error).splitlines()), type(error).__name__)


@contextmanager
def _quiet() -> Iterator[None]:
    """Logs would go to standard output, and say again what the failure says."""
    former = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**former)


async def organisation(opened: Opened, id: str) -> Organisation:
    """Errors: `NotFound` that says where to look."""
    try:
        return await opened.accounts.organisations.organisation(id)
    except NotFound:
        raise NotFound(f"There is no organisation {id!r}. `antiphon orgs list` shows them.") from None


async def places(opened: Opened, org: str | None) -> Sequence[Organisation]:
    """The one that is named, else all."""
    return await opened.accounts.organisations.organisations() if org is None else [await organisation(opened, org)]


async def member(opened: Opened, named: str, org: str | None) -> Member:
    """By id or e-mail, which no two users share."""
    for place in await places(opened, org):
        for found in await opened.accounts.members.members(place.id):
            if named == found.id or named.strip().lower() == found.email:
                return found
    raise NotFound(f"There is no user {named!r}. `antiphon users list` shows them.", param="user")


def span(text: str) -> float:
    """Seconds in 30d. For the `parser` of an option."""
    found = _SPAN.fullmatch(text)
    if not found:
        raise typer.BadParameter("Write it as 90m, 12h, 30d or 4w.")
    return float(int(found[1]) * _UNITS[found[2]])


def moment(text: str) -> float:
    """For the `parser` of an option."""
    from gateway.usage_period import moment as parsed

    try:
        return parsed(text, "It")
    except InvalidRequest as e:
        raise typer.BadParameter(e.message) from None


def parts(text: str | None) -> tuple[str, ...]:
    """Of a list with commas."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def when(at: float | None, timespec: str = "minutes") -> str:
    """In UTC."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).replace(tzinfo=None).isoformat(" ", timespec)


def money(micro_units: int | None) -> str:
    """In units of the currency, exactly; at least two decimals."""
    if micro_units is None:
        return "no limit"
    whole, rest = divmod(micro_units, 10**6)
    decimals = f"{rest:06}".rstrip("0").ljust(2, "0")
    return f"{whole}.{decimals}"


def currency() -> str:
    """Of the price table. Errors: `InvalidRequest` for one that cannot be used."""
    from services.ledger.prices import PriceTable
    from services.ledger.settings import LedgerSettings

    return PriceTable(LedgerSettings().prices).currency


def shown(item: Struct) -> dict[str, Any]:
    """As the admin API has it, and whose it is: no secrets."""
    from gateway.routes.shapes import shape

    tenant = getattr(item, "tenant", None)
    return shape(item) | ({} if tenant is None else {"organization": tenant})


def print_json(items: Iterable[Mapping[str, Any]]) -> None:
    typer.echo(json.dumps(list(items), indent=2))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = (), header: bool = True
) -> None:  # fmt: skip
    """Each row on one line, however narrow the terminal: ids are to be copied. right: columns of numbers."""
    # Texts are what people gave: no markup, and nothing that moves the cursor.
    console = Console(markup=False, emoji=False, highlight=False)
    table = Table(box=None, pad_edge=False, collapse_padding=True, show_header=header)
    for column in columns:
        table.add_column(column, no_wrap=True, justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*("" if cell is None else _plain(str(cell)) for cell in row))
    console.width = max(console.width, table.__rich_measure__(console, console.options.update(width=1 << 20)).maximum)
    console.print(table)


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
