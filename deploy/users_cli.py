"""antiphon users create | list | set-role | set-password | remove | sign-out | invite"""

import sys
from typing import Annotated

import typer

from deploy import accounts_cli as cli
from services.common import account_messages as a
from services.common.errors import Forbidden, InvalidRequest

app = typer.Typer(help="Make, change and invite the people who sign in.", no_args_is_help=True)
User = Annotated[str, typer.Argument(metavar="USER", help="Their e-mail or id.")]
Email = Annotated[str, typer.Argument(metavar="EMAIL")]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input instead of asking for it.")
]
ACCEPT_S = 300.0
MAX_PASSWORD_BYTES = 1 << 16


@app.command()
def create(
    email: Email,
    name: Annotated[str, typer.Option(help="As others see it.")] = "",
    role: Annotated[
        a.Role | None, typer.Option(help="What they may do: member if left out; the first user is the owner.")
    ] = None,
    org: cli.Org = cli.LOCAL,
    password_stdin: FromStdin = False,
    home: cli.Home = None,
) -> None:
    """Make an account and print its id.

    The first user of an installation owns it, and keeps the conversations that are there.
    """

    async def made(opened: cli.Opened) -> str:
        await cli.organisation(opened, org)
        first = await opened.accounts.sign_in.empty()
        if first and (org != cli.LOCAL or role not in (None, "owner")):
            raise Forbidden("The first user owns the installation: create them without --org and --role.")
        person = a.Registration(
            email=email, password=_password(password_stdin), name=name, tenant=cli.LOCAL, space=cli.LOCAL
        )
        session = await (
            opened.accounts.sign_in.register(person) if first else _invited(opened, person, org, role or "member")
        )
        entry = a.AuditEntry(tenant=session.tenant, actor=cli.ACTOR, action="user.add", target=session.user_id)
        await opened.accounts.audit.append(entry)
        return session.user_id

    typer.echo(cli.run(home, made, new=True))


@app.command("list")
def list_users(org: cli.Org = cli.LOCAL, as_json: cli.AsJson = False, home: cli.Home = None) -> None:
    """The people of an organisation."""

    async def found(opened: cli.Opened) -> list[a.Member]:
        return list(await opened.accounts.members.members((await cli.organisation(opened, org)).id))

    members = cli.run(home, found)
    if as_json:
        cli.print_json(map(cli.shown, members))
        return
    rows = ((m.id, m.email, m.name, m.role, cli.when(m.created), cli.when(m.last_seen) or "never") for m in members)
    cli.print_table(("id", "e-mail", "name", "role", "made", "last seen"), rows)


@app.command()
def set_role(user: User, role: a.Role, org: cli.AnyOrg = None, home: cli.Home = None) -> None:
    """Give a user another role; an organisation keeps at least one owner."""

    async def done(opened: cli.Opened) -> None:
        ref = await _ref(opened, user, org)
        patch = a.MemberPatch(tenant=ref.tenant, id=ref.id, role=role, actor=cli.ACTOR)
        await opened.accounts.members.update_member(patch)

    cli.run(home, done)


@app.command()
def set_password(
    user: User, password_stdin: FromStdin = False, org: cli.AnyOrg = None, home: cli.Home = None
) -> None:  # fmt: skip
    """Set a new password, and sign the user out everywhere."""

    async def done(opened: cli.Opened) -> None:
        ref = await _ref(opened, user, org)
        asked = a.NewPassword(tenant=ref.tenant, user_id=ref.id, new=_password(password_stdin), actor=cli.ACTOR)
        await opened.accounts.sign_in.set_password(asked)

    cli.run(home, done)


@app.command()
def remove(user: User, org: cli.AnyOrg = None, home: cli.Home = None) -> None:
    """Remove an account, with its sessions and keys; an organisation keeps at least one owner."""

    async def done(opened: cli.Opened) -> None:
        await opened.accounts.members.remove_member(await _ref(opened, user, org))

    cli.run(home, done)


@app.command()
def sign_out(user: User, org: cli.AnyOrg = None, home: cli.Home = None) -> None:
    """Sign a user out of every browser; running servers see it within 5 seconds."""

    async def done(opened: cli.Opened) -> None:
        await opened.accounts.sessions.close_all(await _ref(opened, user, org))

    cli.run(home, done)


@app.command()
def invite(
    email: Annotated[str, typer.Argument(metavar="[EMAIL]", help="Who may use it; whoever has it if left out.")] = "",
    role: Annotated[a.Role, typer.Option(help="What they will be.")] = "member",
    org: cli.Org = cli.LOCAL,
    expires_in: Annotated[
        float, typer.Option(parser=cli.span, metavar="7d", help="Refuse it after so long; at most 90d.")
    ] = "7d",  # type: ignore[assignment]
    home: cli.Home = None,
) -> None:
    """Invite somebody to make an account: prints the path of the link, and the token in it, once."""

    async def made(opened: cli.Opened) -> a.Invite:
        tenant = (await cli.organisation(opened, org)).id
        asked = a.NewInvite(tenant=tenant, email=email, role=role, lifetime_s=expires_in, actor=cli.ACTOR)
        return await opened.accounts.invites.create_invite(asked)

    token = cli.run(home, made, new=True).token
    typer.echo(f"path: /invite/{token}\ntoken: {token}")


async def _ref(opened: cli.Opened, user: str, org: str | None) -> a.Ref:
    found = await cli.member(opened, user, org)
    return a.Ref(found.tenant, found.id, cli.ACTOR)


async def _invited(opened: cli.Opened, person: a.Registration, org: str, role: a.Role) -> a.NewSession:
    """Accounts are made by invitation: this one is used at once, or taken back."""
    asked = a.NewInvite(tenant=org, email=person.email, role=role, lifetime_s=ACCEPT_S, actor=cli.ACTOR)
    invite = await opened.accounts.invites.create_invite(asked)
    try:
        return await opened.accounts.sign_in.register(
            a.Registration(email=person.email, password=person.password, name=person.name, invite=str(invite.token))
        )
    except BaseException:
        await opened.accounts.invites.remove_invite(a.Ref(org, invite.id, cli.ACTOR))
        raise


def _password(from_stdin: bool) -> str:
    if from_stdin:
        given = typer.get_binary_stream("stdin").read(MAX_PASSWORD_BYTES)
        try:
            return given.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise InvalidRequest("The password must be UTF-8.", param="password") from None
    if not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to ask for a password: use --password-stdin.")
    password: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return password
