"""Bodies as SEMANTICS wants them: strict UTF-8 JSON, nothing that two parsers could read in two ways."""

import json
import math
from typing import Any, NoReturn

from services.common.errors import InvalidRequest

MAX_KEYS = 4096
"""Of one object. Each key that nobody knows costs an error of a kilobyte; a body has room for a million."""


def parse_object(body: bytes) -> dict[str, Any]:
    """`InvalidRequest` for bad UTF-8, NaN, 1e999, a key given twice, lone surrogates, deep nesting, or no object."""
    try:
        text = body.decode()
        value = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )  # fmt: skip
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidRequest("The body holds a lone surrogate, which is not text.") from None
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid UTF-8.") from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply.") from None
    except ValueError as e:
        raise InvalidRequest(f"The body is not valid JSON: {str(e)[:200]}") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object.")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > MAX_KEYS:
        raise ValueError("an object has too many keys")
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return value
