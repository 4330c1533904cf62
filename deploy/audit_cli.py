"""antiphon audit list | verify"""

import json
import re
from typing import Annotated

import typer

from deploy import accounts_cli as cli
from services.common import account_messages as a
from services.common.account_ports import Audit

app = typer.Typer(help="Who did what to keys, members, tiers and content.", no_args_is_help=True)
PAGE = 1000
_HASH = re.compile("[0-9a-f]{64}")


def _hash(text: str) -> str:
    if not _HASH.fullmatch(text.lower()):
        raise typer.BadParameter("A hash has 64 hexadecimal digits.")
    return text.lower()


@app.command("list")
def list_entries(
    org: cli.AnyOrg = None,
    actor: Annotated[str | None, typer.Option(help="Only what this user or key did; `cli`: this command line.")] = None,
    action: Annotated[str | None, typer.Option(metavar="NOUN.VERB", help="Only this, as key.create.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=PAGE, help="At most so many.")] = 50,
    before: Annotated[int | None, typer.Option(min=1, metavar="SEQ", help="Only entries before this one.")] = None,
    as_json: cli.AsJson = False,
    home: cli.Home = None,
) -> None:
    """The newest entries first."""

    async def found(opened: cli.Opened) -> list[a.AuditEntry]:
        tenant = None if org is None else (await cli.organisation(opened, org)).id
        query = a.AuditQuery(tenant=tenant, actor=actor, action=action, limit=limit, before=before)
        return list(await opened.accounts.audit.entries(query))

    entries = cli.run(home, found)
    if as_json:
        cli.print_json(map(cli.shown, entries))
        return
    cli.print_table(("seq", "at", "organisation", "actor", "action", "target", "details"), map(_row, entries))


@app.command()
def verify(
    expect: Annotated[
        str | None, typer.Option(parser=_hash, metavar="HASH", help="A head that was kept: is it still there?")
    ] = None,
    home: cli.Home = None,
) -> None:
    """Follow the chain of hashes through the whole log; prints how many entries are whole, and the last one's hash.

    Keep that hash elsewhere: given to --expect later, it shows whether the end of the log was cut off.
    """

    async def verified(opened: cli.Opened) -> tuple[a.AuditReport, bool]:
        report = await opened.accounts.audit.verify()
        kept = expect is None or expect == report.head or await _holds(opened.accounts.audit, expect)
        return report, kept

    report, kept = cli.run(home, verified)
    typer.echo(f"entries: {report.entries}\nhead: {report.head}")
    if report.broken_at is not None:
        typer.echo(f"antiphon: The audit log is broken at entry {report.broken_at}: {report.reason}.", err=True)
    elif not kept:
        typer.echo("antiphon: The audit log does not hold the hash that was expected: its end was cut off.", err=True)
    if report.broken_at is not None or not kept:
        raise typer.Exit(1)


async def _holds(audit: Audit, hash: str) -> bool:
    """The log goes on after a head was kept: in a whole chain, an entry with that hash proves all before it."""
    page, before = await audit.entries(a.AuditQuery(tenant=None, limit=PAGE)), 0
    while page:
        if any(entry.hash == hash for entry in page):
            return True
        before = page[-1].seq
        page = await audit.entries(a.AuditQuery(tenant=None, limit=PAGE, before=before))
    return False


def _row(entry: a.AuditEntry) -> tuple[object, ...]:
    details = json.dumps(entry.details) if entry.details else ""
    at = cli.when(entry.at, "seconds")
    return entry.seq, at, entry.tenant, entry.actor, entry.action, entry.target, details
