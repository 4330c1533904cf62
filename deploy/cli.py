"""antiphon serve | models … | keys … | users … | orgs … | tiers … | audit … | usage"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
import uvloop
from pydantic import ValidationError
from pydantic_settings import SettingsError

from deploy import audit_cli, keys_cli, models_cli, orgs_cli, tiers_cli, usage_cli, users_cli
from deploy.settings import ServeSettings
from services.common.errors import AntiphonError

app = typer.Typer(help="Serve large language models, the way ChatGPT does.", no_args_is_help=True, add_completion=False)
app.add_typer(models_cli.app, name="models")
app.add_typer(keys_cli.app, name="keys")
app.add_typer(users_cli.app, name="users")
app.add_typer(orgs_cli.app, name="orgs")
app.add_typer(tiers_cli.app, name="tiers")
app.add_typer(audit_cli.app, name="audit")


@app.callback()
def _root() -> None: ...


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on [127.0.0.1].")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on [8000].")] = None,
    model: Annotated[str | None, typer.Option(help="Model names or paths, separated by commas.")] = None,
    home: Annotated[Path | None, typer.Option(help="The data folder.")] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Ask for no API key; loopback only.")] = False,
) -> None:
    """Everything in one process: gateway, chat page, conversations, engine. Other settings: ANTIPHON_… and .env."""
    from deploy.server import serve as run

    given: dict[str, Any] = {"host": host, "port": port, "model": model, "home": home, "no_auth": no_auth or None}
    settings = ServeSettings(**{name: value for name, value in given.items() if value is not None})
    try:
        uvloop.run(run(settings))
    except AntiphonError as e:
        typer.echo(f"antiphon: {e.message}", err=True)
        raise typer.Exit(1) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)


app.command()(usage_cli.usage)


def main() -> None:
    try:
        app()
    except ValidationError as e:
        first = e.errors()[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        what = f"the setting ANTIPHON_{name}" if name else "the settings"
        typer.echo(f"antiphon: {what} cannot be used: {first['msg']}", err=True)
        sys.exit(2)
    except SettingsError as e:
        typer.echo(f"antiphon: a setting cannot be read: {e}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
