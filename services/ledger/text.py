"""What may be stored."""

import msgspec

from services.common.texts import storable
from services.common.usage_messages import UsageRecord

_TEXTS = ("id", "tenant", "kind", "model", "worker", "user_id", "key_id", "project")


def storable_record(record: UsageRecord) -> UsageRecord:
    return msgspec.structs.replace(record, **{name: storable(getattr(record, name)) for name in _TEXTS})
