import json
from contextlib import suppress

import pytest

from inference.schemas import compact, require_compilable
from services.common.errors import InvalidRequest


@pytest.mark.parametrize(
    "schema",
    [{}, {"type": "object", "properties": {"a": {"type": "integer"}}}, {"anyOf": [{"const": 1}, {"enum": ["x", None]}]},
     {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}],
)  # fmt: skip
def test_a_schema_that_a_grammar_can_be_made_of_passes(schema: dict[str, object]) -> None:
    require_compilable(schema)


@pytest.mark.parametrize(
    "schema",
    [{"type": 12}, {"type": "strnig"}, {"$ref": "#/$defs/nowhere"}, {"type": "string", "pattern": "(?<=a)b"},
     {"type": "string", "pattern": "("}, {"type": "integer", "minimum": 3, "maximum": 2}],
    ids=json.dumps,
)  # fmt: skip
def test_a_schema_that_no_text_can_be_held_to_is_refused_by_name(schema: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        require_compilable(schema)
    assert refused.value.param == "response_format"
    assert len(refused.value.message) < 600


def test_deep_nesting_is_refused_or_compiled_but_never_a_crash() -> None:
    schema: dict[str, object] = {"type": "integer"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    with suppress(InvalidRequest):
        require_compilable(schema)


def test_the_layout_is_fixed_and_the_schema_is_left_alone() -> None:
    schema = {"type": "string"}
    assert compact(schema)["x-guidance"]["whitespace_flexible"] is False
    assert schema == {"type": "string"}
    assert compact({})["type"] == "object"
