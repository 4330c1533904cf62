"""antiphon keys create | list | revoke, on the installation's own database."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from deploy.settings import ServeSettings
from gateway.auth import LOCAL
from services.accounts.service import AccountService
from services.common.errors import AntiphonError
from services.common.messages import MessageRef, NewKey

app = typer.Typer(help="API keys of this installation.", no_args_is_help=True)
Home = Annotated[Path | None, typer.Option(help="The data folder.")]
T = TypeVar("T")


@app.command()
def create(name: Annotated[str, typer.Argument()] = "", home: Home = None) -> None:
    """Make a key and print it: it is shown only once."""
    key = _with_accounts(home, lambda accounts: accounts.create_key(NewKey(LOCAL.tenant, name)))
    typer.echo(key.secret)


@app.command("list")
def list_keys(home: Home = None) -> None:
    """The keys, without their secrets."""
    table = Table("id", "name", "ends in", "state")
    for key in _with_accounts(home, lambda accounts: accounts.keys(LOCAL.tenant)):
        table.add_row(key.id, key.name, key.hint, "revoked" if key.revoked else "good")
    Console().print(table)


@app.command()
def revoke(key_id: str, home: Home = None) -> None:
    """Refuse a key from now on; a running server sees it within 5 seconds."""
    _with_accounts(home, lambda accounts: accounts.revoke_key(MessageRef(LOCAL.tenant, key_id)))


def _with_accounts(home: Path | None, do: Callable[[AccountService], Awaitable[T]]) -> T:
    from deploy.embedded import Installation

    async def run() -> T:
        given: dict[str, Any] = {} if home is None else {"home": home}
        installation = Installation(ServeSettings(**given))
        try:
            return await do(await installation.open())
        finally:
            await installation.database.dispose()

    try:
        return asyncio.run(run())
    except AntiphonError as e:
        typer.echo(f"antiphon: {e.message}", err=True)
        raise typer.Exit(1) from None
