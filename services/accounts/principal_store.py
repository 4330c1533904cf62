"""Who a key, a user or an organisation is, and what they may do: one query each. SQLite and PostgreSQL.

None where they may do nothing: what they are or belong to is gone, revoked, expired, archived or suspended.
"""

from typing import Any

from sqlalchemy import ColumnElement, Row, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts.roles import scopes_of
from services.accounts.tables import api_keys, organisations, projects, service_accounts, users
from services.common.account_messages import Principal, Role

_OF_ORGANISATION = tuple(organisations.c[name] for name in ("tier", "region", "monthly_budget", "operator"))
_ACTIVE = organisations.c.suspended.is_(False)
_OF_KEY = (
    select(
        *(api_keys.c[name] for name in ("id", "tenant", "owner", "project", "scopes", "models")),
        *(users.c.role, users.c.space),
        *_OF_ORGANISATION,
    )
    .join_from(api_keys, organisations, organisations.c.id == api_keys.c.tenant)
    .outerjoin(users, and_(users.c.id == api_keys.c.owner, users.c.tenant == api_keys.c.tenant))
    .outerjoin(
        service_accounts,
        and_(service_accounts.c.id == api_keys.c.owner, service_accounts.c.tenant == api_keys.c.tenant),
    )
    .outerjoin(projects, and_(projects.c.id == api_keys.c.project, projects.c.tenant == api_keys.c.tenant))
    .where(
        _ACTIVE,
        api_keys.c.revoked.is_(False),
        or_(api_keys.c.owner == "", users.c.id.is_not(None), service_accounts.c.id.is_not(None)),
        or_(api_keys.c.project == "", projects.c.archived.is_(False)),
    )
)


async def of_key(db: AsyncConnection, chosen: ColumnElement[bool], now: float) -> Principal | None:
    """`chosen` names one row of api_keys. A session that was opened with the key has the same rights."""
    unexpired = or_(api_keys.c.expires.is_(None), api_keys.c.expires > now)
    row = (await db.execute(_OF_KEY.where(chosen, unexpired))).one_or_none()
    if row is None:
        return None
    named = row.scopes.split(",")
    role, most = _role(row.role, row.owner, named)
    return Principal(
        tenant=row.tenant,
        key_id=row.id,
        user_id=row.owner,
        space=row.space or (f"{row.tenant}/{row.owner}" if row.owner else row.tenant),
        project=row.project,
        role=role,
        scopes=tuple(scope for scope in scopes_of(most, row.operator) if scope in named),
        models=tuple(filter(None, row.models.split(","))),
        tier=row.tier,
        region=row.region,
        monthly_budget=row.monthly_budget,
    )


def _role(of_person: Role | None, owner: str, scopes: list[str]) -> tuple[Role, Role]:
    """Of a key's owner, and the one that bounds its scopes: a person who was made less takes the keys along."""
    if of_person is not None:
        return of_person, of_person
    if not owner:
        return "owner", "owner"
    return ("admin" if "admin" in scopes else "member"), "owner"


async def of_user(db: AsyncConnection, chosen: ColumnElement[bool]) -> Principal | None:
    """`chosen` names one row of users."""
    query = (
        select(users.c.id, users.c.tenant, users.c.space, users.c.role, *_OF_ORGANISATION)
        .join_from(users, organisations, organisations.c.id == users.c.tenant)
        .where(_ACTIVE, chosen)
    )
    row = (await db.execute(query)).one_or_none()
    return _with_role(row, row.tenant, row.id, row.space, row.role) if row else None


async def of_actor(db: AsyncConnection, actor: str, now: float) -> Principal | None:
    """Of the user or the key that did a deed, as they are now, in whichever organisation."""
    key = await of_key(db, api_keys.c.id == actor, now)
    return key or await of_user(db, users.c.id == actor)


async def of_organisation(db: AsyncConnection, tenant: str) -> Principal | None:
    """The owner of the machine, who has no account."""
    row = (await db.execute(select(*_OF_ORGANISATION).where(_ACTIVE, organisations.c.id == tenant))).one_or_none()
    return _with_role(row, tenant, "", tenant, "owner") if row else None


def _with_role(row: Row[Any], tenant: str, user_id: str, space: str, role: Role) -> Principal:
    return Principal(
        tenant=tenant,
        user_id=user_id,
        space=space,
        role=role,
        scopes=scopes_of(role, row.operator),
        tier=row.tier,
        region=row.region,
        monthly_budget=row.monthly_budget,
    )
