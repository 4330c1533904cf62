"""What every store does with texts."""

import re
import secrets

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """PostgreSQL holds no NUL and UTF-8 no lone surrogate; each becomes U+FFFD, so that the length stays."""
    return _UNSTORABLE.sub("\ufffd", text)


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"
