from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from services.accounts.passwords import Passwords
from services.accounts.sessions import SessionTokens
from services.accounts.sign_in import SignInService
from services.accounts.sign_in_store import Person
from services.accounts.store import AccountStore
from services.common import account_messages as a
from services.common.errors import NotSignedIn, Overloaded
from services.common.sql import open_database
from tests.support.sign_in import ACME, GOOD, PEPPER, house_at

OLIVE = "olive@acme.example"


@pytest.fixture
async def away() -> AsyncIterator[AccountStore]:
    """A database that cannot be used."""
    engine = open_database("postgresql+asyncpg://nobody@127.0.0.1:1/nowhere")
    yield AccountStore(engine, PEPPER)
    await engine.dispose()


@pytest.mark.parametrize("token", ["", "ses-" + "é" * 43, "x" * 10_000_000, "ses-" + "a" * 43 + "\n"], ids=range(4))
async def test_a_malformed_token_never_reaches_the_database(away: AccountStore, token: str) -> None:
    with pytest.raises(NotSignedIn):
        await SessionTokens(away, PEPPER).resolve(token)


async def test_without_the_database_nobody_guesses(away: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = Passwords(PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
    verified: list[object] = []
    monkeypatch.setattr(PasswordHasher, "verify", lambda *arguments: verified.append(arguments))
    sign_in = SignInService(away, PEPPER, passwords=passwords)
    with pytest.raises(Overloaded):
        await sign_in.with_password(a.PasswordSignIn(email=OLIVE, password=GOOD, address="192.0.2.1"))
    assert verified == []


async def test_a_password_is_kept_in_the_form_of_today_after_the_next_sign_in(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'test.db'}"
    async with house_at("sqlite", url) as house:
        olive = await house.owner()
        engine = open_database(url)
        stronger = Passwords(PasswordHasher(time_cost=3, memory_cost=16, parallelism=1))
        sign_in = SignInService(AccountStore(engine, PEPPER), PEPPER, passwords=stronger, clock=house.clock)
        assert "m=8,t=1" in await house.stored()
        for _ in range(2):
            assert await sign_in.with_password(a.PasswordSignIn(email=OLIVE, password=GOOD)) == olive
            kept = await house.stored()
            assert "m=16,t=3" in kept
            assert "m=8,t=1" not in kept
        await engine.dispose()


def test_a_person_is_shown_without_password_and_address() -> None:
    shown = repr(Person("user_1", ACME, OLIVE, "owner", "$argon2id$…"))
    assert "argon2" not in shown
    assert OLIVE not in shown
