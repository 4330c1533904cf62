"""antiphon models list | pull | rm | verify. Exit codes: 0 done, 1 it cannot be had or is damaged, 2 no such model."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from inference.models.cache import Cache, sha256
from inference.models.catalog import load_catalog, resolve
from inference.models.errors import ModelUnavailable, UnknownModel
from inference.models.messages import Model
from inference.models.progress import shown
from inference.models.pull import ensure
from inference.models.settings import ModelSettings

app = typer.Typer(no_args_is_help=True, help="Fetch, check and remove model weights.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `antiphon models list` shows, or a file.")]


@app.command("list")
def list_models(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """What there is, and what is already here."""
    with _failures():
        catalog = load_catalog()
        cache = Cache(ModelSettings().models)
        rows = [_row(model, cache, default=model.name == catalog.default) for model in catalog.models]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    columns = ("name", "kind", "size", "context", "licence", "pulled")
    table = Table(*columns, box=None, pad_edge=False, collapse_padding=True, caption="* the default")
    for row in rows:
        name = f"{row['name']} *" if row["default"] else str(row["name"])
        size, pulled = decimal(int(str(row["bytes"]))), str(row["pulled"])
        table.add_row(name, str(row["kind"]), size, str(row["context_length"]), str(row["licence"]), pulled)
    Console().print(table)


@app.command()
def pull(name: Name) -> None:
    """Bring a model's files here and verify them; continues an interrupted pull."""
    with _failures():
        settings = ModelSettings()
        model = resolve(name, settings=settings)
        try:
            with shown(Console(stderr=True)) as progress:
                paths = ensure(model, progress, settings=settings)
        except KeyboardInterrupt:
            typer.echo(f"Interrupted. `antiphon models pull {name}` continues where this stopped.", err=True)
            raise typer.Exit(130) from None
        for path in paths.values():
            typer.echo(path)


@app.command()
def rm(name: Name) -> None:
    """Delete a model's files from the cache."""
    with _failures():
        settings = ModelSettings()
        model = resolve(name, settings=settings)
        if model.local:
            raise UnknownModel(f"{model.local} is your own file, outside the cache: delete it yourself.")
        freed = Cache(settings.models).remove(model)
        typer.echo(f"{model.name}: {freed:,} bytes freed ({decimal(freed)}).")


@app.command()
def verify(name: Annotated[str | None, typer.Argument(help="All pulled models if left out.")] = None) -> None:
    """Hash what is here and compare it with the catalog."""
    with _failures():
        settings = ModelSettings()
        cache = Cache(settings.models)
        models = [resolve(name, settings=settings)] if name else _present(cache)
        damaged = [model for model in models if not _verified(model, cache)]
    if not models:
        typer.echo("No model is pulled.")
    if damaged:
        raise typer.Exit(1)


def _verified(model: Model, cache: Cache) -> bool:
    whole = True
    for file in model.files:
        path = cache.path(model, file)
        check = cache.check(model, file, rehash=True)
        if check.status != "ok":
            whole = False
            typer.echo(f"{path} {check.reason}: `antiphon models pull {model.name}` mends it.", err=True)
        elif file.sha256:
            typer.echo(f"{path}: ok")
        else:
            typer.echo(f"{path}: sha256 {sha256(path)}, with nothing to compare it with")
    return whole


def _present(cache: Cache) -> list[Model]:
    return [model for model in load_catalog().models if cache.status(model) != "no"]


def _row(model: Model, cache: Cache, *, default: bool) -> dict[str, str | int | bool | None]:
    return {
        "name": model.name,
        "kind": model.kind,
        "bytes": model.bytes,
        "context_length": model.context_length,
        "licence": model.licence,
        "pulled": cache.status(model),
        "default": default,
        "description": model.description,
    }


@contextmanager
def _failures() -> Iterator[None]:
    """A user's mistake is told in their words, without a traceback."""
    try:
        yield
    except UnknownModel as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(2) from None
    except ModelUnavailable as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(1) from None
    except ValidationError as error:
        first = error.errors()[0]
        typer.echo(f"ANTIPHON_{str(first['loc'][0]).upper()}: {first['msg']}", err=True)
        raise typer.Exit(2) from None
