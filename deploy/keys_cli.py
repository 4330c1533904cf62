"""antiphon keys create | list | revoke"""

import time
from typing import Annotated

import typer

from deploy import accounts_cli as cli
from services.common import account_messages as a
from services.common.errors import NotFound

app = typer.Typer(help="Make, list and revoke API keys.", no_args_is_help=True)
BY_DEFAULT = ", ".join(a.USER_SCOPES)
Scopes = Annotated[
    str | None, typer.Option(metavar="A,B", help=f"What it may do: {BY_DEFAULT} (if left out); also admin, operator.")
]
Expires = Annotated[
    float | None, typer.Option(parser=cli.span, metavar="30d", help="Refuse it after so long; never if left out.")
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")] = "",
    org: cli.Org = cli.LOCAL,
    owner: Annotated[
        str, typer.Option(help="A user's e-mail or id, or a service account's id; the organisation itself if left out.")
    ] = "",
    project: Annotated[str, typer.Option(metavar="ID", help="The project that its usage counts for.")] = "",
    scopes: Scopes = None,
    models: Annotated[
        str | None, typer.Option(metavar="A,B", help="The models that it may use; all if left out.")
    ] = None,
    expires_in: Expires = None,
    home: cli.Home = None,
) -> None:
    """Make a key and print it: it is shown only once."""

    async def made(opened: cli.Opened) -> a.ApiKey:
        return await opened.accounts.keys.create_key(
            a.NewKey(
                tenant=(await cli.organisation(opened, org)).id,
                name=name,
                owner=(await cli.member(opened, owner, org)).id if "@" in owner else owner,
                project=project,
                scopes=a.USER_SCOPES if scopes is None else cli.parts(scopes),  # type: ignore[arg-type]
                models=cli.parts(models),
                expires=None if expires_in is None else time.time() + expires_in,
                actor=cli.ACTOR,
            )
        )

    typer.echo(cli.run(home, made, new=True).secret)


@app.command("list")
def list_keys(org: cli.Org = cli.LOCAL, as_json: cli.AsJson = False, home: cli.Home = None) -> None:
    """An organisation's keys, without their secrets."""

    async def found(opened: cli.Opened) -> list[a.ApiKey]:
        tenant = (await cli.organisation(opened, org)).id
        return list(await opened.accounts.keys.keys(a.KeyQuery(tenant=tenant)))

    keys = cli.run(home, found)
    if as_json:
        cli.print_json(map(cli.shown, keys))
        return
    columns = ("id", "name", "ends in", "owner", "project", "scopes", "models", "expires", "last used", "state")
    cli.print_table(columns, map(_row, keys))


@app.command()
def revoke(key_id: Annotated[str, typer.Argument(metavar="ID")], org: cli.AnyOrg = None, home: cli.Home = None) -> None:
    """Refuse a key from now on; running servers see it within 5 seconds."""

    async def revoked(opened: cli.Opened) -> None:
        for place in await cli.places(opened, org):
            if any(key.id == key_id for key in await opened.accounts.keys.keys(a.KeyQuery(tenant=place.id))):
                return await opened.accounts.keys.revoke_key(a.Ref(place.id, key_id, cli.ACTOR))
        raise NotFound("There is no such key. `antiphon keys list` shows the ids.")

    cli.run(home, revoked)


def _row(key: a.ApiKey) -> tuple[object, ...]:
    expired = key.expires is not None and key.expires <= time.time()
    return (
        key.id, key.name, key.hint, key.owner or key.tenant, key.project, ",".join(key.scopes),
        ",".join(key.models) or "all", cli.when(key.expires) or "never", cli.when(key.last_used) or "never",
        "revoked" if key.revoked else "expired" if expired else "good",
    )  # fmt: skip
