"""The fingerprint of a request: equal for equal JSON, however it is written, and for nothing else."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.idempotency import fingerprint

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=8
)  # fmt: skip
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=4) | st.dictionaries(NAMES, v, max_size=4), max_leaves=12)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=4)
FEW = st.sampled_from([None, True, 1, 1.0, 0, 0.0, -0.0, "", "1", "a"])
ALIKE = st.dictionaries(st.sampled_from("ab"), st.recursive(FEW, lambda v: st.lists(v, max_size=2), max_leaves=3))
"""Of so few words that two of them are often equal, and often nearly."""


def same(a: Any, b: Any) -> bool:
    """As JSON: true is not 1, and 1.0 is written by another client than 1."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(v, b[k]) for k, v in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


def shuffled(value: Any, draw: st.DataObject) -> Any:
    if isinstance(value, dict):
        return {k: shuffled(value[k], draw) for k in draw.draw(st.permutations(list(value)))}
    return [shuffled(v, draw) for v in value] if isinstance(value, list) else value


@given(OBJECTS, st.data())
def test_it_does_not_depend_on_how_the_body_is_written(value: Any, draw: st.DataObject) -> None:
    plain = json.dumps(value).encode()
    other = json.dumps(
        shuffled(value, draw), indent=draw.draw(st.sampled_from([None, 0, 3, "\t"])),
        ensure_ascii=draw.draw(st.booleans()), separators=draw.draw(st.sampled_from([(",", ":"), (" , ", " :\r\n")])),
    ).encode()  # fmt: skip
    assert fingerprint(other) == fingerprint(plain)


@given(ALIKE, ALIKE)
@example({"a": True}, {"a": 1})
@example({"a": 1}, {"a": 1.0})
@example({"a": ["1"]}, {"a": "1"})
@example({"a": [1, 2]}, {"a": [2, 1]})
def test_it_is_equal_only_for_equal_json(one: Any, other: Any) -> None:
    prints = [fingerprint(json.dumps(v).encode()) for v in (one, other)]
    assert (prints[0] == prints[1]) == same(one, other)


@given(OBJECTS, OBJECTS)
def test_it_tells_any_two_apart(one: Any, other: Any) -> None:
    prints = [fingerprint(json.dumps(v).encode()) for v in (one, other)]
    assert (prints[0] == prints[1]) == same(one, other)


@given(st.binary(max_size=64), st.binary(max_size=64))
@example(b'{"a": 1}', b'json{"a":1}')
@example(b'{"a":1,"a":2}', b'{"a":2}')
@example(b"[1]", b"[ 1]")
@example(b"{" * 100_000, b"{" * 99_999)
@example(b'{"a":' * 990 + b"1" + b"}" * 990, b'{"a":' * 990 + b"2" + b"}" * 990)
def test_what_is_no_json_object_is_taken_byte_by_byte(one: bytes, other: bytes) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


def form(boundary: str, text: str) -> tuple[bytes, bytes]:
    body = f'--{boundary}\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n{text}\r\n--{boundary}--\r\n'
    return body.encode(), f"multipart/form-data; boundary={boundary}".encode()


def test_a_form_is_the_same_with_another_boundary() -> None:
    assert fingerprint(*form("a1b2", "Hello")) == fingerprint(*form("c3d4", "Hello"))
    assert fingerprint(*form("a1b2", "Hello")) != fingerprint(*form("a1b2", "Hullo"))
    quoted = form("a1b2", "Hello")[0], b'multipart/form-data; charset=utf-8; boundary="a1b2"'
    assert fingerprint(*quoted) == fingerprint(*form("c3d4", "Hello"))


@pytest.mark.parametrize("query", [b"a=1", b"{}"])
def test_the_query_counts(query: bytes) -> None:
    assert fingerprint(b"{}", query=query) != fingerprint(b"{}")
    assert fingerprint(b"{}", query=query) == fingerprint(b"{ }", query=query)
