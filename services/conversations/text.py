"""What may be stored, and what search compares."""

import re
import secrets

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ID = re.compile("(conv|msg)_[0-9a-f]{32}")


def storable(text: str) -> str:
    """PostgreSQL holds no NUL and UTF-8 no lone surrogate; each becomes U+FFFD, so that the length stays."""
    return _UNSTORABLE.sub("\ufffd", text)


def folded(text: str) -> str:
    """Kept beside the text, because SQLite folds ASCII only and PostgreSQL whatever its locale says."""
    return text.casefold()


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def is_id(text: str, prefix: str) -> bool:
    found = _ID.fullmatch(text)
    return found is not None and found[1] == prefix
