"""What may be stored."""

import re

import msgspec

from services.common.usage_messages import UsageRecord

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_TEXTS = ("id", "tenant", "kind", "model", "worker", "user_id", "key_id", "project")


def storable(text: str) -> str:
    """PostgreSQL holds no NUL and UTF-8 no lone surrogate; each becomes U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def storable_record(record: UsageRecord) -> UsageRecord:
    return msgspec.structs.replace(record, **{name: storable(getattr(record, name)) for name in _TEXTS})
