import pytest

from deploy.installation import Installation
from services.common.account_messages import NewSession, PasswordSignIn
from services.common.errors import NotSignedIn
from tests.support.command_line import PASSWORD, CommandLine


def signs_in(antiphon: CommandLine, email: str, password: str) -> bool:
    async def attempt(installation: Installation) -> bool:
        try:
            await installation.accounts.ports.sign_in.with_password(PasswordSignIn(email=email, password=password))
        except NotSignedIn:
            return False
        return True

    return antiphon.inside(attempt)


def roles(antiphon: CommandLine, org: str = "local") -> dict[str, str]:
    return {user["email"]: user["role"] for user in antiphon.objects("users", "list", "--org", org)}


def test_the_first_user_owns_the_installation_and_keeps_its_space(antiphon: CommandLine) -> None:
    id = antiphon.user("Ann@x.org", "--name", "Ann")

    async def spaces(installation: Installation) -> list[tuple[str, str]]:
        return [(m.id, m.space) for m in await installation.accounts.ports.members.members("local")]

    assert antiphon.inside(spaces) == [(id, "local")]
    assert roles(antiphon) == {"ann@x.org": "owner"}
    assert signs_in(antiphon, "ann@x.org", PASSWORD)


def test_the_first_user_is_nothing_less(antiphon: CommandLine) -> None:
    acme = antiphon.done("orgs", "create", "Acme")
    for options in (["--role", "member"], ["--org", acme]):
        told = antiphon.refused("users", "create", "a@x.org", "--password-stdin", *options, given=PASSWORD)
        assert "first user owns" in told
    assert antiphon.user("a@x.org", "--role", "owner")


def test_later_users_get_the_role_and_organisation_that_are_named(antiphon: CommandLine) -> None:
    antiphon.user("ann@x.org")
    acme = antiphon.done("orgs", "create", "Acme")
    antiphon.user("bob@x.org")
    antiphon.user("eve@x.org", "--role", "owner", "--org", acme)
    assert roles(antiphon) == {"ann@x.org": "owner", "bob@x.org": "member"}
    assert roles(antiphon, acme) == {"eve@x.org": "owner"}
    assert antiphon.deeds(acme)[-1] == ("cli", "user.add")
    assert signs_in(antiphon, "eve@x.org", PASSWORD)


@pytest.mark.parametrize(
    ("email", "password", "told"),
    [
        ("ann@x.org", PASSWORD, "already an account"),
        ("nobody", PASSWORD, "not an e-mail address"),
        ("bob@x.org", "canary", "8 to 1024 characters"),
        ("bob@x.org", "passw0rd", "guessed first"),
        ("bob@x.org", b"canary\xff canary", "UTF-8"),
    ],
)
def test_a_user_who_cannot_be_leaves_no_invitation(
    email: str, password: str | bytes, told: str, antiphon: CommandLine
) -> None:
    antiphon.user("ann@x.org")
    refusal = antiphon.refused("users", "create", email, "--password-stdin", given=password)
    assert told in refusal
    assert "canary" not in refusal
    assert roles(antiphon) == {"ann@x.org": "owner"}

    async def invites(installation: Installation) -> int:
        return sum(not i.accepted_by for i in await installation.accounts.ports.invites.invites("local"))

    assert antiphon.inside(invites) == 0


def test_without_a_terminal_no_password_is_asked_for(antiphon: CommandLine) -> None:
    assert "--password-stdin" in antiphon.misunderstood("users", "create", "ann@x.org", given=PASSWORD)


def test_one_line_end_is_not_part_of_the_password(antiphon: CommandLine) -> None:
    antiphon.done("users", "create", "ann@x.org", "--password-stdin", given=f" {PASSWORD} \r\n")
    assert signs_in(antiphon, "ann@x.org", f" {PASSWORD} ")


def test_a_password_is_set_without_the_old_one(antiphon: CommandLine) -> None:
    antiphon.user("ann@x.org")
    assert antiphon.done("users", "set-password", "ann@x.org", "--password-stdin", given="another horse") == ""
    assert signs_in(antiphon, "ann@x.org", "another horse")
    assert not signs_in(antiphon, "ann@x.org", PASSWORD)
    assert ("cli", "user.password") in antiphon.deeds()


def test_signing_out_ends_every_session(antiphon: CommandLine) -> None:
    id = antiphon.user("ann@x.org")

    async def enter(installation: Installation) -> str:
        return await installation.accounts.ports.sessions.open(NewSession(tenant="local", user_id=id))

    async def inside(installation: Installation) -> str:
        return (await installation.accounts.ports.sessions.resolve(token)).user_id

    token = antiphon.inside(enter)
    assert antiphon.inside(inside) == id
    assert antiphon.done("users", "sign-out", "ann@x.org") == ""
    with pytest.raises(NotSignedIn):
        antiphon.inside(inside)


def test_roles_change_but_for_the_last_owner(antiphon: CommandLine) -> None:
    id = antiphon.user("ann@x.org")
    antiphon.user("bob@x.org")
    for words in (["set-role", id, "member"], ["remove", "ann@x.org"]):
        assert "at least one owner" in antiphon.refused("users", *words)
    assert antiphon.done("users", "set-role", "Bob@x.org", "owner") == ""
    assert antiphon.done("users", "remove", id) == ""
    assert roles(antiphon) == {"bob@x.org": "owner"}
    assert antiphon.deeds()[-2:] == [("cli", "member.role"), ("cli", "member.remove")]
    assert "'ann@x.org'" in antiphon.refused("users", "remove", "ann@x.org")
    assert "not one of" in antiphon.misunderstood("users", "set-role", "bob@x.org", "king")


def test_an_invitation_is_shown_once_and_works(antiphon: CommandLine) -> None:
    acme = antiphon.done("orgs", "create", "Acme")
    path, token = antiphon.done("users", "invite", "eve@x.org", "--role", "admin", "--org", acme).splitlines()
    assert path == f"path: /invite/{token.removeprefix('token: ')}"

    async def shown(installation: Installation) -> tuple[str, str, str]:
        found = await installation.accounts.ports.invites.invite(token.removeprefix("token: "))
        return found.tenant, found.email, found.role

    assert antiphon.inside(shown) == (acme, "eve@x.org", "admin")
    assert "90 days" in antiphon.refused("users", "invite", "--expires-in", "91d")
    assert "e-mail" in antiphon.refused("users", "invite", "nobody")
