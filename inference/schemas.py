"""JSON Schemas as engines take them: checked before they are used, and written without free whitespace."""

from services.common.errors import InvalidRequest
from services.common.messages import Json

# With free whitespace small models fill their whole window with newlines inside an object.
_LAYOUT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def compact(schema: Json) -> Json:
    """The schema with the one layout that the grammar may produce. {} becomes "any object"."""
    return {**(schema or {"type": "object"}), "x-guidance": _LAYOUT}


def require_compilable(schema: Json, param: str = "response_format") -> None:
    """`InvalidRequest`, which names `param`, if no grammar can be made of the schema."""
    from llguidance import LLMatcher

    failed, messages = LLMatcher.validate_grammar_with_warnings(LLMatcher.grammar_from_json_schema(compact(schema)))
    if failed:
        raise InvalidRequest(f"The JSON schema cannot be used: {'; '.join(messages)[:500]}", param=param)
