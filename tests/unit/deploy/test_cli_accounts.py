"""What all commands on accounts share: amounts, spans, tables, and how failures are told."""

from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from deploy.accounts_cli import money, print_table, span
from deploy.cli import app
from deploy.orgs_cli import NO_BUDGET, budget
from tests.support.command_line import CommandLine

LEAVES = sorted(
    f"{group.name} {command.name or str(command.callback.__name__).replace('_', '-')}"  # type: ignore[union-attr]
    for group in app.registered_groups
    if group.name != "models"
    for command in group.typer_instance.registered_commands  # type: ignore[union-attr]
)
WITHOUT_FOLDER = ("tiers list", "tiers check")
MAKING = ("keys create", "users create", "users invite", "orgs create")
ARGUMENTS = {
    "keys revoke": ["x"], "users create": ["a@x.org", "--password-stdin"], "users set-role": ["x", "admin"],
    "users set-password": ["x", "--password-stdin"], "users remove": ["x"], "users sign-out": ["x"],
    "orgs create": ["x"], "orgs set-tier": ["x", "free"], "orgs set-budget": ["x", "1"], "orgs suspend": ["x"],
    "orgs resume": ["x"], "orgs rename": ["x", "y"],
}  # fmt: skip


@given(st.integers(0, 2**60))
def test_money_is_read_as_it_is_written(micro_units: int) -> None:
    assert budget(money(micro_units)) == micro_units


def test_money_has_two_decimals_or_as_many_as_it_needs() -> None:
    assert [money(n) for n in (0, 1, 12_500_000, 1_234_567)] == ["0.00", "0.000001", "12.50", "1.234567"]
    assert (money(None), budget("none"), budget("7"), budget("0.1000000")) == (
        "no limit",
        NO_BUDGET,
        7_000_000,
        100_000,
    )


@pytest.mark.parametrize("text", ["", "-1", "1e3", "1.0000001", "nan", "1,5", ".5", "5.", "NONE", "9" * 17, "١"])
def test_an_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        budget(text)


def test_a_span_has_a_unit() -> None:
    assert [span(text) for text in ("90m", "12h", "30d", "4w")] == [5400, 43_200, 2_592_000, 2_419_200]
    for text in ("", "30", "d", "0d", "-1d", "1y", "1.5d", "1d ", "9999999d"):
        with pytest.raises(typer.BadParameter):
            span(text)


def test_a_row_is_one_line_and_shows_texts_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("id", "name"), [("x" * 100, "[red]a[/red] :smile:\x1b[2J\n"), (1, None)])
    head, long, short = capsys.readouterr().out.splitlines()
    assert long.split(" ", 1) == ["x" * 100, "[red]a[/red] :smile:\ufffd[2J\ufffd"]
    assert (head.split(), short.split()) == (["id", "name"], ["1"])


@pytest.mark.parametrize("command", [*LEAVES, "usage"])
def test_every_command_has_help_and_a_data_folder(command: str, antiphon: CommandLine) -> None:
    help = antiphon.done(*command.split(), "--help")
    assert "--home" in help
    assert not antiphon.home.exists()


@pytest.mark.parametrize("command", sorted({*LEAVES, "usage"} - {*WITHOUT_FOLDER, *MAKING}))
def test_a_slip_in_the_data_folder_makes_none(command: str, antiphon: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "slip"
    told = antiphon.refused(*command.split(), *ARGUMENTS.get(command, []), "--home", str(other))
    assert str(other) in told
    assert not other.exists()
    assert not antiphon.home.exists()


def test_a_data_folder_that_cannot_be_is_named(antiphon: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert str(file) in antiphon.refused("keys", "create", "--home", str(file))


def test_a_database_that_is_none_is_told_in_one_line(antiphon: CommandLine) -> None:
    antiphon.home.mkdir()
    (antiphon.home / "antiphon.db").write_bytes(b"no database" * 1000)
    assert antiphon.refused("keys", "create") == "The database cannot be used: file is not a database."


def test_a_database_that_is_away_is_told_without_its_password(
    antiphon: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATABASE_URL", "postgresql+asyncpg://ann:canary@127.0.0.1:1/antiphon")
    told = antiphon.refused("keys", "create")
    assert told.startswith("The database cannot be used now. (")
    assert "canary" not in told


def test_a_scheme_that_is_no_database_is_told_without_its_password(
    antiphon: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_DATABASE_URL", "mysql://ann:canary@localhost/antiphon")
    told = antiphon.refused("keys", "create")
    assert "postgresql+asyncpg" in told
    assert "canary" not in told
