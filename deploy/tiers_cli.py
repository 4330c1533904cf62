"""antiphon tiers list | check"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from deploy import accounts_cli as cli
from services.accounts.tiers import TierFile, TierSettings
from services.common.usage_messages import Limits, Tier

app = typer.Typer(help="What organisations may use.", no_args_is_help=True)
NONE = "no limit"
TIER = ("tier", "budget a month", "weight", "scheduling", "max context", "max output", "models", "tools")
LIMITS = ("requests/min", "tokens/min", "tokens/day", "streams")


@app.command("list")
def list_tiers(as_json: cli.AsJson = False, home: cli.Home = None) -> None:
    """The tiers, as the file at ANTIPHON_TIERS (or the one that is shipped) has them now. No data folder is needed."""
    with cli.failures():
        tiers = TierFile(TierSettings().tiers).all()
    if as_json:
        cli.print_json({"object": "tier", **msgspec.to_builtins(tier)} for tier in tiers.values())
        return
    cli.print_table(TIER, map(_tier, tiers.values()), right=TIER[1:3] + TIER[4:6])
    typer.echo()
    cli.print_table(("tier", "models", "each", *LIMITS), _limits(tiers), right=LIMITS)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A tiers file, before servers read it.")], home: cli.Home = None
) -> None:  # fmt: skip
    """Say whether a tiers file can be used; if not, which tier and field is wrong. No data folder is needed."""
    with cli.failures():
        tiers = TierFile(file).all()
    typer.echo(f"{file}: good ({', '.join(tiers)})")


def _tier(tier: Tier) -> tuple[object, ...]:
    return (
        tier.name, cli.money(tier.monthly_budget), f"{tier.weight:g}", tier.scheduling, _number(tier.max_context),
        _number(tier.max_output_tokens), ", ".join(tier.models) or "none", ", ".join(tier.tools) or "none",
    )  # fmt: skip


def _limits(tiers: Mapping[str, Tier]) -> list[tuple[object, ...]]:
    return [
        (tier.name, models, subject, *_numbers(limits))
        for tier in tiers.values()
        for models, subjects in tier.limits.items()
        for subject, limits in subjects.items()
    ]


def _numbers(limits: Limits) -> list[str]:
    values: list[Any] = [getattr(limits, name) for name in Limits.__struct_fields__]
    return [_number(value) for value in values]


def _number(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"
