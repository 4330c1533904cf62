"""What the admin API's routes share: ids and texts that are taken, and the shapes that are given."""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Path, Query
from msgspec import Struct, structs
from pydantic import Field

from services.common import account_messages as a
from services.common.usage_messages import UsageTotal

PRINTABLE = r"^[\x20-\x7e]*$"
"""Ids and names of models hold nothing else; a NUL would not even reach a database."""
Id = Annotated[str, Path(max_length=200)]
IdFilter = Annotated[str | None, Query(max_length=200, pattern=PRINTABLE)]
IdField = Annotated[str, Field(max_length=200, pattern=PRINTABLE)]
Name = Annotated[str, Field(max_length=1000)]
"""Bounded here, judged by the service."""
Days = Annotated[int, Field(ge=1, le=3650)]
Money = Annotated[int, Field(ge=0, le=2**53)]

_TIMES = frozenset(("created", "expires", "last_used", "last_seen"))
_FIELDS: dict[type[Struct], tuple[str, str]] = {
    a.Organisation: ("organization", "id name tier region monthly_budget suspended operator created"),
    a.Member: ("organization.user", "id email name role has_password created last_seen"),
    a.Invite: ("organization.invite", "id email role created expires accepted_by"),
    a.Project: ("organization.project", "id name archived created"),
    a.ServiceAccount: ("organization.service_account", "id name project created"),
    a.ApiKey: (
        "organization.api_key",
        "id name hint owner project scopes models created expires last_used revoked",
    ),
    a.AuditEntry: ("organization.audit_log", "seq at actor action target details hash"),
}


def shape(item: Struct) -> dict[str, Any]:
    """What the API shows of it: never its tenant, and a secret only where a route adds it."""
    kind, fields = _FIELDS[type(item)]
    return {"object": kind} | {name: _shown(name, getattr(item, name)) for name in fields.split()}


def listed(items: Iterable[Struct]) -> dict[str, Any]:
    return {"object": "list", "data": [shape(item) for item in items]}


def usage_bucket(total: UsageTotal) -> dict[str, Any]:
    return {"object": "usage.bucket"} | structs.asdict(total) | {"start": int(total.start)}


def ref(who: a.Principal, id: str) -> a.Ref:
    return a.Ref(who.tenant, id, who.actor)


def _shown(name: str, value: Any) -> Any:
    return int(value) if name in _TIMES and value is not None else value
