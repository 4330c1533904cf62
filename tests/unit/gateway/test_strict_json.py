"""What a body must be: strict UTF-8 JSON, an object, nothing that two parsers could read in two ways."""

import json
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.strict_json import parse_object
from services.common.errors import InvalidRequest

TEXT = st.text()
SCALARS = st.none() | st.booleans() | st.integers(-(10**80), 10**80) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    SCALARS | TEXT, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=20
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=5)
quick = settings(deadline=None)

REFUSED = {
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": [Infinity]}',
    "-Infinity": b'{"a": {"b": -Infinity}}',
    "1e999": b'{"a": 1e999}',
    "-1e999": b'{"a": [[-1e999]]}',
    "an integer of 5,000 digits": b'{"a": ' + b"9" * 5000 + b"}",
    "a key twice": b'{"a": 1, "a": 1}',
    "a key twice, once escaped": b'{"a": 1, "\\u0061": 2}',
    "a key twice, deep down": b'{"x": [{"y": {"a": 1, "b": 2, "a": 3}}]}',
    "a byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "a stray continuation byte": b'{"a": "\x80"}',
    "a cut-off sequence": b'{"a": "\xe2\x82"}',
    "an overlong slash": b'{"a": "\xc0\xaf"}',
    "a surrogate in UTF-8": b'{"a": "\xed\xa0\x80"}',
    "a lone high surrogate": rb'{"a": "\ud800"}',
    "a lone high surrogate in capitals": rb'{"a": "\uD800"}',
    "a lone low surrogate": rb'{"a": "x\udfffy"}',
    "a pair the wrong way round": rb'{"a": "\udc00\ud800"}',
    "a lone surrogate in a key": rb'{"\ud800": 1}',
    "a lone surrogate in a deep key in capitals": rb'{"a": [{"\uDBFF": 1}]}',
    "100,000 arrays": b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "100,000 brackets that never close": b"[" * 100_000,
    "nothing": b"",
    "white space": b" \n",
    "an array": b"[1]",
    "a string": b'"a"',
    "a number": b"1",
    "null": b"null",
    "something after the end": b'{"a": 1} x',
    "two documents": b'{"a": 1}{"a": 1}',
    "a comma too many": b'{"a": 1,}',
    "a comment": b'{"a": 1} // no',
    "single quotes": b"{'a': 1}",
    "a raw newline in a string": b'{"a": "x\ny"}',
    "a raw NUL in a string": b'{"a": "x\x00y"}',
    "a leading zero": b'{"a": 01}',
    "a plus sign": b'{"a": +1}',
    "hexadecimal": b'{"a": 0x1}',
}


@quick
@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]))
@example({"\U0001f600": "\U0001f600 \ud7ff\ue000 \u2028 \x85 \x00"}, True, None)
def test_what_json_can_say_is_read_as_it_was_written(value: dict[str, object], ascii_only: bool, indent: int) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert parse_object(body) == value


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_no_strict_json_object_is_refused_in_few_words(body: bytes) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_object(body)
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize("body", [rb'{"a": "\ud83d\ude00"}', rb'{"a": "\uD83D\uDE00"}', '{"a": "😀"}'.encode()])
def test_a_pair_of_surrogates_is_one_character(body: bytes) -> None:
    assert parse_object(body) == {"a": "😀"}


def test_a_backslash_before_ud800_that_is_itself_escaped_is_only_text() -> None:
    assert parse_object(rb'{"a": "\\ud800"}') == {"a": "\\ud800"}


@quick
@given(st.binary(max_size=60) | st.text(alphabet='{}[]":,\\ud8019eE+-.ntf ').map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with suppress(InvalidRequest):
        assert isinstance(parse_object(body), dict)


@quick
@given(OBJECTS, st.data())
def test_a_damaged_document_is_read_or_refused(value: dict[str, object], data: st.DataObject) -> None:
    body = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidRequest):
        assert isinstance(parse_object(bytes(body)), dict)


@quick
@given(st.dictionaries(TEXT, SCALARS, min_size=1, max_size=4), st.integers(0, 30))
def test_a_key_that_is_given_twice_is_refused_at_any_depth(inner: dict[str, object], depth: int) -> None:
    pairs = json.dumps(inner)[1:-1]
    body = "[" * depth + f"{{{pairs}, {pairs}}}" + "]" * depth
    with pytest.raises(InvalidRequest, match="twice"):
        parse_object(f'{{"a": {body}}}'.encode())
