"""API keys: everybody's own, and for admins all of the organisation's."""

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.responses import Response

from gateway.auth import has_role, is_admin, require_scope
from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import Access
from gateway.routes.members import DAY_S
from gateway.routes.shapes import PRINTABLE, Days, Id, IdField, IdFilter, Name, listed, ref, shape
from services.common.account_messages import USER_SCOPES, KeyQuery, NewKey, Principal, Scope
from services.common.errors import Forbidden, MissingScope, NotFound

ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=PRINTABLE)]
OF_OWNERS = frozenset(("admin", "operator", "conversations"))
"""A key that nobody owns acts as the organisation's owner, and sees the conversations that it keeps as itself."""


class CreateKey(Wire):
    name: Name = ""
    scopes: Annotated[list[Scope], Field(fail_fast=True, min_length=1, max_length=20)] | None = None
    models: Annotated[list[ModelName], Field(fail_fast=True, max_length=100)] | None = None
    expires_in_days: Days | None = None
    project: IdField | None = None
    owner: IdField | None = None


def router(ports: GatewayPorts, prefix: str, access: Access) -> APIRouter:
    routes = APIRouter(prefix=f"{prefix}/organization/api_keys", tags=["organization"])
    Caller = Annotated[Principal, Depends(access)]  # noqa: N806 (a type)

    @routes.get("")
    async def keys(who: Caller, owner: IdFilter = None, project: IdFilter = None) -> dict[str, Any]:
        if not is_admin(who):
            if owner not in (None, _person(who)):
                return listed(())
            owner = _person(who)
        return listed(await ports.keys.keys(KeyQuery(tenant=who.tenant, owner=owner, project=project)))

    @routes.post("", status_code=201)
    async def create(body: CreateKey, who: Caller, response: Response) -> dict[str, Any]:
        response.headers["cache-control"] = "no-store"
        _require_hands(who)
        made = await ports.keys.create_key(await _asked(ports, body, who))
        return shape(made) | {"secret": made.secret}

    @routes.delete("/{key_id}", status_code=204)
    async def revoke(key_id: Id, who: Caller) -> Response:
        _require_hands(who)
        if not is_admin(who):
            own = await ports.keys.keys(KeyQuery(tenant=who.tenant, owner=_person(who)))
            if all(key.id != key_id for key in own):
                raise NotFound("There is no such key.")  # others' are as missing as those that never were
        await ports.keys.revoke_key(ref(who, key_id))
        return Response(status_code=204)

    return routes


def _person(who: Principal) -> str:
    """Errors: `MissingScope` for a key of the organisation itself, which has none of its own."""
    if not who.user_id:
        require_scope(who, "admin")
    return who.user_id


def _require_hands(who: Principal) -> None:
    """A key that leaked must not make its own successors."""
    if who.key_id:
        require_scope(who, "admin")


async def _asked(ports: GatewayPorts, body: CreateKey, who: Principal) -> NewKey:
    owner = await _owner(ports, body, who)
    days = body.expires_in_days
    return NewKey(
        tenant=who.tenant, name=body.name, owner=owner, project=_project(body, who), scopes=_scopes(body, who, owner),
        models=_models(body, who), expires=None if days is None else time.time() + days * DAY_S, actor=who.actor,
    )  # fmt: skip


async def _owner(ports: GatewayPorts, body: CreateKey, who: Principal) -> str:
    """Oneself; for admins also a service account, or "", the organisation. Errors: `Forbidden`, `NotFound`."""
    own = _person(who)
    if body.owner is None or body.owner == own:
        return own
    if not is_admin(who):
        raise Forbidden("Members make keys for themselves only.", param="owner")
    if body.owner == "" or any(s.id == body.owner for s in await ports.service_accounts.service_accounts(who.tenant)):
        return body.owner
    try:
        await ports.members.member(ref(who, body.owner))
    except NotFound as e:
        raise NotFound("There is no such user or service account.", param="owner") from e
    # It would read that person's conversations, and may have rights that its maker lacks.
    raise Forbidden("People make their own keys. Make one for a service account instead.", param="owner")


def _scopes(body: CreateKey, who: Principal, owner: str) -> tuple[Scope, ...]:
    may = set(who.scopes)
    if owner == "" and not has_role(who, "owner"):
        may -= OF_OWNERS
    if body.scopes is None:
        return tuple(scope for scope in USER_SCOPES if scope in may)
    for scope in body.scopes:
        if scope not in may:
            raise MissingScope(f"You cannot give the scope `{scope}`, which you do not have.", param="scopes")
    return tuple(dict.fromkeys(body.scopes))


def _models(body: CreateKey, who: Principal) -> tuple[str, ...]:
    """A key that is limited to some models makes keys for those."""
    if not body.models:
        return who.models
    for model in body.models:
        if who.models and model not in who.models:
            raise Forbidden(f"You cannot give the model `{model}`, which you may not use.", param="models")
    return tuple(dict.fromkeys(body.models))


def _project(body: CreateKey, who: Principal) -> str:
    """A key of a project makes keys for it."""
    asked = who.project if body.project is None else body.project
    if who.project and asked != who.project:
        raise Forbidden("A project's key makes keys for this project only.", param="project")
    return asked
