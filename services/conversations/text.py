"""What ids look like, and what search compares."""

import re

_ID = re.compile("(conv|msg)_[0-9a-f]{32}")


def folded(text: str) -> str:
    """Kept beside the text, because SQLite folds ASCII only and PostgreSQL whatever its locale says."""
    return text.casefold()


def is_id(text: str, prefix: str) -> bool:
    found = _ID.fullmatch(text)
    return found is not None and found[1] == prefix
