"""antiphon orgs create | list | show | set-tier | set-budget | suspend | resume | rename"""

import json
import re
import time
from typing import Annotated, Any

import typer

from deploy import accounts_cli as cli
from services.common import account_messages as a
from services.common.usage_messages import UsageQuery

app = typer.Typer(help="Make and manage organisations: whose everything is.", no_args_is_help=True)
Id = Annotated[str, typer.Argument(metavar="ORG", help="The id of the organisation.")]
NO_BUDGET = -1
_AMOUNT = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,20}))?")


def budget(text: str) -> int:
    """Micro-units in 12.50, exactly; -1 for none."""
    if text == "none":
        return NO_BUDGET
    found = _AMOUNT.fullmatch(text)
    decimals = (found[2] or "").rstrip("0") if found else ""
    if not found or len(decimals) > 6:
        raise typer.BadParameter("Write it as 12 or 12.50, with at most six decimals, or `none`.")
    return int(found[1]) * 10**6 + int(decimals.ljust(6, "0"))


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="As people see it.")],
    tier: Annotated[str, typer.Option(help="What it may use: `antiphon tiers list`.")] = "free",
    region: Annotated[
        str, typer.Option(help="Where its content is stored and computed; anywhere if left out.")
    ] = "",
    home: cli.Home = None,
) -> None:  # fmt: skip
    """Make an organisation and print its id. Invite its owner next: `antiphon users invite --org ID --role owner`."""

    async def made(opened: cli.Opened) -> a.Organisation:
        asked = a.NewOrganisation(name=name, tier=tier, region=region, actor=cli.ACTOR)
        return await opened.accounts.organisations.create_organisation(asked)

    typer.echo(cli.run(home, made, new=True).id)


@app.command("list")
def list_orgs(as_json: cli.AsJson = False, home: cli.Home = None) -> None:
    """All organisations."""

    async def found(opened: cli.Opened) -> list[a.Organisation]:
        return list(await opened.accounts.organisations.organisations())

    organisations = cli.run(home, found)
    if as_json:
        cli.print_json(map(cli.shown, organisations))
        return
    columns = ("id", "name", "tier", "region", "budget", "made", "state")
    rows = (
        (o.id, o.name, o.tier, o.region, cli.money(o.monthly_budget), cli.when(o.created), _state(o))
        for o in organisations
    )  # fmt: skip
    cli.print_table(columns, rows, right=("budget",))


@app.command()
def show(
    org: Id = cli.LOCAL,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: an object.")] = False,
    home: cli.Home = None,
) -> None:
    """One organisation: its tier, what it may spend in a month, and what it has spent in this one."""

    async def found(opened: cli.Opened) -> dict[str, Any]:
        from gateway.usage_period import month

        found, now = await cli.organisation(opened, org), time.time()
        query = UsageQuery(tenant=found.id, start=month(now).start, end=now + 1)
        return cli.shown(found) | {
            "tier_budget": opened.tiers.tier(found.tier).monthly_budget,
            "spent": await opened.ledger.spent(query),
            "currency": cli.currency(),
        }

    fields = cli.run(home, found)
    if as_json:
        typer.echo(json.dumps(fields, indent=2))
        return
    rows = [
        *((name, fields[name]) for name in ("id", "name", "tier", "region")),
        ("made", cli.when(fields["created"])),
        ("suspended", "yes" if fields["suspended"] else "no"),
        ("budget", cli.money(fields["monthly_budget"])),
        ("tier's budget", cli.money(fields["tier_budget"])),
        ("spent this month", f"{cli.money(fields['spent'])} {fields['currency']}"),
    ]
    cli.print_table(("", ""), rows, header=False)


@app.command()
def set_tier(org: Id, tier: str, home: cli.Home = None) -> None:
    """Move an organisation to another tier."""
    _update(home, a.OrganisationPatch(id=org, tier=tier, actor=cli.ACTOR))


@app.command()
def set_budget(
    org: Id,
    amount: Annotated[int, typer.Argument(parser=budget, metavar="AMOUNT", help="12.50, or `none`.")],
    home: cli.Home = None,
) -> None:
    """Limit what an organisation may spend in a month, in the currency of the price table. The tier's limit stays."""
    _update(home, a.OrganisationPatch(id=org, monthly_budget=amount, actor=cli.ACTOR))


@app.command()
def suspend(org: Id, home: cli.Home = None) -> None:
    """Refuse an organisation's keys and sessions until `resume`."""
    _update(home, a.OrganisationPatch(id=org, suspended=True, actor=cli.ACTOR))


@app.command()
def resume(org: Id, home: cli.Home = None) -> None:
    """Let a suspended organisation in again."""
    _update(home, a.OrganisationPatch(id=org, suspended=False, actor=cli.ACTOR))


@app.command()
def rename(org: Id, name: str, home: cli.Home = None) -> None:
    """Give an organisation another name; its id stays."""
    _update(home, a.OrganisationPatch(id=org, name=name, actor=cli.ACTOR))


def _update(home: cli.Home, patch: a.OrganisationPatch) -> None:
    async def done(opened: cli.Opened) -> None:
        await cli.organisation(opened, patch.id)
        await opened.accounts.organisations.update_organisation(patch)

    cli.run(home, done)


def _state(organisation: a.Organisation) -> str:
    return "suspended" if organisation.suspended else "operator" if organisation.operator else "good"
