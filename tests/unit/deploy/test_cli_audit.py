import sqlite3
from contextlib import closing

from tests.support.command_line import CommandLine


def verified(antiphon: CommandLine, *options: str) -> tuple[int, int, str, str]:
    """Exit code, entries, head, and what was said on standard error."""
    result = antiphon("audit", "verify", *options)
    entries, head = result.stdout.splitlines()
    return result.exit_code, int(entries.removeprefix("entries: ")), head.removeprefix("head: "), result.stderr


def tamper(antiphon: CommandLine, statement: str) -> None:
    """As somebody who may do everything to the database."""
    with closing(sqlite3.connect(antiphon.home / "antiphon.db")) as db, db:
        db.execute("DROP TRIGGER audit_log_refuses_update")
        db.execute("DROP TRIGGER audit_log_refuses_delete")
        assert db.execute(statement).rowcount == 1


def test_entries_are_listed_newest_first_by_what_is_asked(antiphon: CommandLine) -> None:
    acme = antiphon.done("orgs", "create", "Acme")
    antiphon.done("keys", "create", "--org", acme)
    antiphon.done("keys", "create")
    entries = antiphon.objects("audit", "list")
    assert [entry["seq"] for entry in entries] == [4, 3, 2, 1]
    assert [e["organization"] for e in antiphon.objects("audit", "list", "--action", "key.create")] == ["local", acme]
    assert [e["seq"] for e in antiphon.objects("audit", "list", "--org", acme)] == [3, 2]
    assert [e["seq"] for e in antiphon.objects("audit", "list", "--actor", "system")] == [1]
    assert [e["seq"] for e in antiphon.objects("audit", "list", "--limit", "1", "--before", "3")] == [2]
    assert len(antiphon.done("audit", "list").splitlines()) == 5
    assert "organisation 'nope'" in antiphon.refused("audit", "list", "--org", "nope")
    assert "--limit" in antiphon.misunderstood("audit", "list", "--limit", "0")


def test_a_whole_log_is_told_with_its_length_and_head(antiphon: CommandLine) -> None:
    antiphon.done("keys", "create")
    code, entries, head, told = verified(antiphon)
    assert (code, entries, told) == (0, 2, "")
    assert antiphon.objects("audit", "list")[0]["hash"] == head
    assert verified(antiphon, "--expect", head)[0] == 0
    antiphon.done("keys", "create")
    assert verified(antiphon, "--expect", head)[:2] == (0, 3), "the log has grown since, and still holds it"


def test_a_changed_entry_is_found_in_its_place(antiphon: CommandLine) -> None:
    for _ in range(3):
        antiphon.done("keys", "create")
    tamper(antiphon, "UPDATE audit_log SET actor = 'system' WHERE seq = 3")
    code, entries, _, told = verified(antiphon)
    assert (code, entries) == (1, 2)
    assert "broken at entry 3" in told


def test_a_missing_entry_is_found_in_its_place(antiphon: CommandLine) -> None:
    for _ in range(3):
        antiphon.done("keys", "create")
    tamper(antiphon, "DELETE FROM audit_log WHERE seq = 2")
    code, entries, _, told = verified(antiphon)
    assert (code, entries) == (1, 1)
    assert "broken at entry 2: an entry is missing" in told


def test_an_end_that_was_cut_off_shows_by_the_head_that_was_kept(antiphon: CommandLine) -> None:
    antiphon.done("keys", "create")
    head = verified(antiphon)[2]
    tamper(antiphon, "DELETE FROM audit_log WHERE seq = 2")
    assert verified(antiphon)[0] == 0
    code, entries, _, told = verified(antiphon, "--expect", head)
    assert (code, entries) == (1, 1)
    assert "cut off" in told


def test_a_hash_that_is_none_is_a_usage_error(antiphon: CommandLine) -> None:
    assert "64 hexadecimal digits" in antiphon.misunderstood("audit", "verify", "--expect", "abc")
