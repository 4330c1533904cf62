"""What `Accounts` and `Sessions` promise, wherever they run."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from sqlalchemy import text

from services.accounts.api import create_app
from services.accounts.cache import CachedAccounts, CachedSessions
from services.accounts.client import AccountsClient, SessionsClient
from services.accounts.service import SESSION_S, AccountService, SessionTokens
from services.accounts.store import MIGRATIONS, AccountStore
from services.common import messages as m
from services.common.errors import InvalidApiKey, InvalidRequest, NotFound
from services.common.ports import Accounts, Sessions
from services.common.sql import migrate, open_database, reading
from tests.support.http import served

PEPPER = b"a pepper for tests only"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class House:
    accounts: Accounts
    sessions: Sessions
    clock: Clock
    database_url: str

    async def stored(self) -> str:
        """Everything the database holds, as text."""
        engine = open_database(self.database_url)
        async with reading(engine) as db:
            rows = [str((await db.execute(text(f"SELECT * FROM {t}"))).all()) for t in ("api_keys", "sessions")]
        await engine.dispose()
        return "".join(rows)


@pytest.fixture(params=[False, True], ids=["asked", "cached"])
def cached(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
async def house(place: str, cached: bool, database_url: str) -> AsyncIterator[House]:
    engine, clock = open_database(database_url), Clock()
    await migrate(engine, "accounts", MIGRATIONS)
    accounts: Accounts = AccountService(AccountStore(engine), PEPPER, clock)
    sessions: Sessions = SessionTokens(AccountStore(engine), PEPPER, clock)
    if cached:
        accounts, sessions = CachedAccounts(accounts, clock), CachedSessions(sessions, clock)
    if place == "http":
        async with served(create_app(accounts, sessions)) as (url, session):
            yield House(AccountsClient(url, session), SessionsClient(url, session), clock, database_url)
    else:
        yield House(accounts, sessions, clock, database_url)
    await engine.dispose()


async def test_a_key_lets_its_tenant_in(house: House) -> None:
    key = await house.accounts.create_key(m.NewKey("a", "laptop"))
    assert key.secret is not None
    assert re.fullmatch(r"sk-[A-Za-z0-9_-]{43}", key.secret)
    assert re.fullmatch(r"key_[0-9a-f]{32}", key.id)
    assert (key.tenant, key.name, key.hint, key.created) == ("a", "laptop", key.secret[-4:], house.clock.now)
    for _ in range(3):
        assert await house.accounts.authenticate(key.secret) == m.Principal("a", key.id)


async def test_a_secret_is_shown_once_and_kept_nowhere(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    key = await house.accounts.create_key(m.NewKey("a", "k"))
    token = await house.sessions.open("a")
    secret = str(key.secret)
    await house.accounts.authenticate(secret)
    await house.sessions.resolve(token)
    listed = await house.accounts.keys("a")
    assert [item.secret for item in listed] == [None]
    assert secret not in repr(key)
    with pytest.raises(InvalidApiKey) as failure:
        await house.accounts.authenticate(secret[:-1] + ("A" if secret[-1] != "A" else "B"))
    seen = await house.stored() + caplog.text + repr(failure.value) + failure.value.message + repr(vars(house.accounts))
    for part in (secret[3:], secret[3:20], token[4:], token[4:20], PEPPER.decode()):
        assert part not in seen


async def test_a_tenant_sees_its_own_keys_oldest_first(house: House) -> None:
    made = []
    for name in ("one", "two", "three"):
        made.append(await house.accounts.create_key(m.NewKey("a", name)))
        house.clock.now += 1
    await house.accounts.create_key(m.NewKey("b", "theirs"))
    assert [(key.id, key.name, key.hint) for key in await house.accounts.keys("a")] == [
        (key.id, key.name, key.hint) for key in made
    ]
    assert tuple(await house.accounts.keys("nobody")) == ()


async def test_a_revoked_key_is_refused_at_once(house: House) -> None:
    key, other = [await house.accounts.create_key(m.NewKey("a", name)) for name in ("k", "other")]
    await house.accounts.authenticate(str(key.secret))
    await house.accounts.revoke_key(m.MessageRef("a", key.id))
    with pytest.raises(InvalidApiKey):
        await house.accounts.authenticate(str(key.secret))
    assert await house.accounts.authenticate(str(other.secret)) == m.Principal("a", other.id)
    assert [item.revoked for item in await house.accounts.keys("a") if item.id == key.id] == [True]
    await house.accounts.revoke_key(m.MessageRef("a", key.id))


async def test_anothers_key_cannot_be_revoked(house: House) -> None:
    key = await house.accounts.create_key(m.NewKey("a", "k"))
    for ref in (m.MessageRef("b", key.id), m.MessageRef("a", "key_unknown"), m.MessageRef("a", "key_\x00")):
        with pytest.raises(NotFound):
            await house.accounts.revoke_key(ref)
    assert await house.accounts.authenticate(str(key.secret)) == m.Principal("a", key.id)


async def test_a_key_name_is_printable(house: House) -> None:
    for name in ("x" * 201, "a\x00b", "a\nb"):
        with pytest.raises(InvalidRequest) as failure:
            await house.accounts.create_key(m.NewKey("a", name))
        assert failure.value.param == "name"


MALFORMED = [
    "",
    "sk-",
    "Bearer x",
    "sk-" + "é" * 43,
    "sk-" + "a" * 42,
    "sk-" + "a" * 44,
    "sk-" + "a" * 43 + "\n",
    "\x00",
]


@pytest.mark.parametrize("secret", [*MALFORMED, "sk-" + "a" * 43, "ses-" + "a" * 43, "x" * 1_000_000], ids=range(11))
async def test_what_is_no_key_is_refused(house: House, secret: str) -> None:
    with pytest.raises(InvalidApiKey):
        await house.accounts.authenticate(secret)
    with pytest.raises(InvalidApiKey):
        await house.sessions.resolve(secret)
    await house.sessions.close(secret)


async def test_a_session_lasts_until_it_is_closed(house: House) -> None:
    token, other = await house.sessions.open("a"), await house.sessions.open("a")
    assert token != other
    assert await house.sessions.resolve(token) == m.Principal("a")
    await house.sessions.close(token)
    with pytest.raises(InvalidApiKey):
        await house.sessions.resolve(token)
    assert await house.sessions.resolve(other) == m.Principal("a")
    await house.sessions.close(token)


async def test_a_session_expires_and_is_forgotten(house: House) -> None:
    token = await house.sessions.open("old-tenant")
    house.clock.now += SESSION_S - 10
    assert await house.sessions.resolve(token) == m.Principal("old-tenant")
    house.clock.now += 10
    with pytest.raises(InvalidApiKey):
        await house.sessions.resolve(token)
    await house.sessions.open("new-tenant")
    assert "old-tenant" not in await house.stored()


async def test_keys_and_sessions_are_not_mixed_up(house: House) -> None:
    key, token = await house.accounts.create_key(m.NewKey("a", "k")), await house.sessions.open("a")
    with pytest.raises(InvalidApiKey):
        await house.accounts.authenticate(token)
    with pytest.raises(InvalidApiKey):
        await house.sessions.resolve(str(key.secret))


async def test_many_at_once(house: House) -> None:
    made = await asyncio.gather(*(house.accounts.create_key(m.NewKey("a", str(number))) for number in range(30)))
    who = await asyncio.gather(*(house.accounts.authenticate(str(key.secret)) for key in made))
    assert [principal.key_id for principal in who] == [key.id for key in made]
