"""API keys. Only digests of their secrets are kept."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import msgspec

from services.accounts import text
from services.accounts.deeds import deed
from services.accounts.key_store import USED_S, KeyQueries
from services.accounts.last_used import LastUsed
from services.accounts.secret import SecretKind, bad_key
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import InvalidRequest, NotFound
from services.common.texts import new_id

MAX_MODELS = 50
MAX_MODEL = 256
SCOPES: tuple[str, ...] = get_args(a.Scope)
Clock = Callable[[], float]


class KeyService:
    """Asks the database each time: wrap it in `CachedKeys`. The pepper is the same in every replica, for ever.

    Ended by `close`, which waits until the last uses of keys are written.
    """

    def __init__(self, store: AccountStore, pepper: bytes, clock: Clock = time.time):
        self._store = store
        self._secrets = SecretKind("sk-", pepper)
        self._clock = clock
        self._used = LastUsed(self._write_used, USED_S)

    async def authenticate(self, secret: str) -> a.Principal:
        # A malformed key costs the same HMAC and the same query: the time tells nothing.
        digest, now = self._secrets.digest_of_any(secret), self._clock()
        async with self._store.reading(KeyQueries) as db:
            principal = await db.principal(digest, now)
        if principal is None:
            raise bad_key()
        self._used.note(principal.key_id, now)
        return principal

    async def create_key(self, request: a.NewKey) -> a.ApiKey:
        secret = self._secrets.new()
        key = self._new(request, secret)
        async with self._store.writing(KeyQueries) as db:
            key = msgspec.structs.replace(key, project=await _placed(db, key))
            await db.add(key, self._secrets.digest_of_any(secret))
            details = {name: getattr(key, name) for name in ("owner", "project", "scopes", "models", "expires")}
            await db.note(deed(a.Ref(key.tenant, key.id, request.actor), "key.create", key.created, details))
        return msgspec.structs.replace(key, secret=secret)

    def _new(self, request: a.NewKey, secret: str) -> a.ApiKey:
        now = self._clock()
        return a.ApiKey(
            id=new_id("key"),
            tenant=request.tenant,
            name=text.name(request.name, optional=True),
            hint=secret[-4:],
            created=now,
            owner=request.owner,
            project=request.project,
            scopes=_scopes(request.scopes),
            models=_models(request.models),
            expires=_expires(request.expires, now),
        )

    async def keys(self, query: a.KeyQuery) -> Sequence[a.ApiKey]:
        async with self._store.reading(KeyQueries) as db:
            return await db.find(query)

    async def revoke_key(self, ref: a.Ref) -> None:
        async with self._store.writing(KeyQueries) as db:
            done = await db.revoke(ref.tenant, ref.id)
            if done is None:
                raise NotFound("There is no such key.")
            if done:
                await db.note(deed(ref, "key.revoke", self._clock()))

    async def close(self) -> None:
        await self._used.close()

    async def _write_used(self, times: Mapping[str, float]) -> None:
        async with self._store.writing(KeyQueries) as db:
            await db.used(times)


async def _placed(db: KeyQueries, key: a.ApiKey) -> str:
    """The key's project, once all that it names is found: a service account's keys are in the account's project."""
    operator = await db.is_operator(key.tenant)
    if operator is None:
        raise NotFound("There is no such organisation.")
    if "operator" in key.scopes and not operator:
        raise InvalidRequest("Only keys of the operator's organisation have the scope `operator`.", param="scopes")
    project = key.project
    if key.owner and not await db.has_user(key.tenant, key.owner):
        of_account = await db.project_of_account(key.tenant, key.owner)
        if of_account is None:
            raise NotFound("There is no such user or service account.", param="owner")
        if of_account and project not in ("", of_account):
            raise InvalidRequest("The service account belongs to another project.", param="project")
        project = project or of_account
    if project:
        archived = await db.is_archived(key.tenant, project)
        if archived is None:
            raise NotFound("There is no such project.", param="project")
        if archived:
            raise InvalidRequest("The project is archived.", param="project")
    return project


def _scopes(scopes: Sequence[a.Scope]) -> tuple[a.Scope, ...]:
    if not scopes or not set(scopes) <= set(SCOPES):
        raise InvalidRequest(f"A key has one or more of the scopes {', '.join(SCOPES)}.", param="scopes")
    return tuple(dict.fromkeys(scopes))


def _models(models: Sequence[str]) -> tuple[str, ...]:
    if len(models) > MAX_MODELS:
        raise InvalidRequest(f"A key names at most {MAX_MODELS} models.", param="models")
    # A comma parts the names where they are kept.
    if not all(0 < len(model) <= MAX_MODEL and model.isprintable() and "," not in model for model in models):
        raise InvalidRequest(
            f"A model's name has 1 to {MAX_MODEL} printable characters and no comma.", param="models"
        )  # fmt: skip
    return tuple(dict.fromkeys(models))


def _expires(expires: float | None, now: float) -> float | None:
    if expires is not None and not (math.isfinite(expires) and expires > now):
        raise InvalidRequest("A key expires in the future.", param="expires")
    return expires
