import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.accounts.secret import SecretKind
from services.accounts.service import AccountService, SessionTokens
from services.accounts.store import AccountStore
from services.common.errors import InvalidApiKey
from services.common.sql import open_database

PEPPER = bytes(range(32))


@given(st.text())
def test_only_the_exact_shape_has_a_digest(text: str) -> None:
    kind = SecretKind("sk-", PEPPER)
    assert kind.digest(text) is None
    assert kind.digest(kind.new() + text) is None or text == ""
    assert kind.digest(text + kind.new()) is None or text == ""


def test_a_digest_depends_on_secret_and_pepper() -> None:
    kind = SecretKind("sk-", PEPPER)
    made = [kind.new() for _ in range(100)]
    digests = {kind.digest(secret) for secret in made}
    assert len(digests) == 100
    assert None not in digests
    assert SecretKind("sk-", PEPPER + b"x").digest(made[0]) != kind.digest(made[0])


def test_a_short_pepper_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes") as failure:
        SecretKind("sk-", b"salt")
    assert "salt" not in str(failure.value)


@pytest.mark.parametrize("secret", ["", "sk-" + "é" * 43, "x" * 10_000_000, "sk-" + "a" * 43 + "\n"])
async def test_a_malformed_secret_never_reaches_the_database(secret: str) -> None:
    store = AccountStore(open_database("sqlite+aiosqlite:////nowhere/at/all.db"))
    with pytest.raises(InvalidApiKey):
        await AccountService(store, PEPPER).authenticate(secret)
    with pytest.raises(InvalidApiKey):
        await SessionTokens(store, PEPPER).resolve(secret)
