"""What the audit log is told of a deed. Ids and settings: people's names and addresses would stay there for ever."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from services.common.account_messages import AuditEntry, Ref
from services.common.messages import Json


def deed(on: Ref, action: str, at: float, details: Json | None = None) -> AuditEntry:
    return AuditEntry(tenant=on.tenant, actor=on.actor, action=action, target=on.id, details=details or {}, at=at)


def changed(before: Struct, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], Json]:
    """What of `wanted` is not so yet, and the same as `{field: {"old": …, "new": …}}`."""
    changes = {name: value for name, value in wanted.items() if getattr(before, name) != value}
    return changes, {name: {"old": getattr(before, name), "new": value} for name, value in changes.items()}
