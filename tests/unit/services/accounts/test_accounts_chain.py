"""Any change to the audit log's rows, by whoever may write to the database but does not know the pepper, is found."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.accounts.chain import GENESIS, Chain, Walk
from services.common.account_messages import AuditReport

PEPPER = b"a pepper for tests only"
Row = dict[str, Any]
quick = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
words = st.text(max_size=4)
json = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words | st.lists(words, max_size=2)
entries = st.fixed_dictionaries(
    {
        "at": st.floats(0, 4e9),
        "tenant": words,
        "actor": words,
        "action": words,
        "target": words,
        "details": st.dictionaries(words, json, max_size=2).map(
            lambda d: msgspec.json.encode(d, order="sorted").decode()
        ),
    }
)
logs = st.lists(entries, min_size=1, max_size=5)


def chained(entries: list[Row], chain: Chain | None = None) -> list[Row]:
    rows: list[Row] = []
    for seq, entry in enumerate(entries, 1):
        row = entry | {"seq": seq}
        before = rows[-1]["hash"] if rows else GENESIS
        rows.append(row | {"hash": (chain or Chain(PEPPER)).hash(before, row)})
    return rows


def verified(rows: list[Row]) -> AuditReport:
    walk = Walk(Chain(PEPPER))
    for row in rows:
        if not walk.step(row):
            break
    return walk.report


def found(rows: list[Row], tampered: list[Row]) -> bool:
    """By the log itself or, where the newest entries are gone, by the head that was kept elsewhere."""
    report = verified(tampered)
    return report.broken_at is not None or report.head != verified(rows).head


@quick
@given(logs)
def test_a_log_that_nobody_touched_is_whole(log: list[Row]) -> None:
    rows = chained(log)
    assert verified(rows) == AuditReport(entries=len(rows), head=rows[-1]["hash"])


def other(field: str, value: Any) -> st.SearchStrategy[Any]:
    """Another value for a column, of the kind that the column holds or, as in SQLite, of none that it should."""
    kinds: Mapping[str, st.SearchStrategy[Any]] = {
        "seq": st.integers(-(2**40), 2**40),
        "at": st.floats(allow_nan=True) | st.integers(),
        "details": words | json.map(lambda value: msgspec.json.encode(value).decode()) | st.binary(max_size=3),
        "hash": st.text("0123456789abcdef", max_size=64),
    }
    return kinds.get(field, words | st.none() | st.integers()).filter(lambda new: repr(new) != repr(value))


@quick
@given(logs, st.data())
def test_a_changed_field_is_found_where_it_is(log: list[Row], data: st.DataObject) -> None:
    rows = chained(log)
    at = data.draw(st.integers(0, len(rows) - 1))
    field = data.draw(st.sampled_from(sorted(rows[at])))
    tampered = [dict(row) for row in rows]
    tampered[at][field] = data.draw(other(field, rows[at][field]))
    if tampered[at][field] == rows[at][field] and type(tampered[at][field]) is not type(rows[at][field]):
        return  # 5 and 5.0 are one value to the database
    report = verified(tampered)
    assert (report.broken_at, report.entries) == (at + 1, at)
    assert report.reason


@quick
@given(logs, st.data())
def test_a_removed_entry_is_found(log: list[Row], data: st.DataObject) -> None:
    rows = chained(log)
    at = data.draw(st.integers(0, len(rows) - 1))
    tampered = rows[:at] + rows[at + 1 :]
    assert found(rows, tampered)
    renumbered = [row | {"seq": seq} for seq, row in enumerate(tampered, 1)]
    assert found(rows, renumbered)


@quick
@given(logs, entries, st.data())
def test_an_inserted_entry_is_found(log: list[Row], forged: Row, data: st.DataObject) -> None:
    rows = chained(log)
    at = data.draw(st.integers(0, len(rows)))
    before = rows[at - 1]["hash"] if at else GENESIS
    row = forged | {"seq": at + 1}
    shifted = [later | {"seq": later["seq"] + 1} for later in rows[at:]]
    for hash in (data.draw(st.sampled_from(rows))["hash"], Chain(b"a guess at the pepper").hash(before, row)):
        for rest in (shifted, rows[at:]):
            assert verified([*rows[:at], row | {"hash": hash}, *rest]).broken_at is not None


@quick
@given(st.lists(entries, min_size=2, max_size=5), st.data())
def test_reordered_entries_are_found(log: list[Row], data: st.DataObject) -> None:
    rows = chained(log)
    order = data.draw(st.permutations(range(len(rows))).filter(lambda order: list(order) != list(range(len(rows)))))
    moved = [rows[index] for index in order]
    first = next(at for at, index in enumerate(order) if at != index)
    assert verified(moved).broken_at == first + 1
    assert verified([row | {"seq": seq} for seq, row in enumerate(moved, 1)]).broken_at == first + 1


@quick
@given(logs)
def test_who_does_not_know_the_pepper_cannot_write_a_log_anew(log: list[Row]) -> None:
    assert verified(chained(log, Chain(b"a guess at the pepper"))).broken_at == 1


@quick
@given(entries, st.sampled_from(["tenant", "actor", "action", "target"]))
def test_text_cannot_slip_from_one_field_into_the_next(entry: Row, field: str) -> None:
    names = ["tenant", "actor", "action", "target"]
    after = names[(names.index(field) + 1) % 4]
    chain: Callable[[str, Row], str] = Chain(PEPPER).hash
    one = entry | {"seq": 1, field: "ab", after: "c"}
    two = entry | {"seq": 1, field: "a", after: "bc"}
    assert chain(GENESIS, one) != chain(GENESIS, two)
