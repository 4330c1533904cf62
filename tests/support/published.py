"""The API's published schema, where the checkout has it beside itself."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

SPECIFICATION = Path(__file__).parents[2].parent / "shared" / "specs" / "openai-openapi-2.3.0.json"
PUBLISHED = [SPECIFICATION] if SPECIFICATION.is_file() else []
"""Parametrise a check against the schema with this: where there is no schema, there is no such check."""


def assert_published(schema: str, body: Any) -> None:
    """The body is an instance of `#/components/schemas/{schema}`."""
    errors = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in _validator(schema).iter_errors(body)]
    assert not errors, "\n".join(errors)


@cache
def _validator(schema: str) -> Draft202012Validator:
    registry = Registry().with_resource("urn:openai", DRAFT202012.create_resource(_document()))
    return Draft202012Validator({"$ref": f"urn:openai#/components/schemas/{schema}"}, registry=registry)


@cache
def _document() -> Any:
    return _nulls(json.loads(SPECIFICATION.read_text()))


def _nulls(schema: Any) -> Any:
    """`nullable`, a word of OpenAPI 3.0 that this 3.1 document still uses, in JSON Schema's own terms."""
    if isinstance(schema, list):
        return [_nulls(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _nulls(value) for key, value in schema.items() if key != "nullable" or value is not True}
    return {"anyOf": [inner, {"type": "null"}]} if schema.get("nullable") is True else inner
