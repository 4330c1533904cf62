import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.accounts.secret import SecretKind

PEPPER = bytes(range(32))


@given(st.text())
def test_only_the_exact_shape_has_a_digest(text: str) -> None:
    kind = SecretKind("sk-", PEPPER)
    assert kind.digest(text) is None
    assert kind.digest(kind.new() + text) is None or text == ""
    assert kind.digest(text + kind.new()) is None or text == ""


@given(st.text())
def test_what_is_malformed_has_the_digest_of_nothing(text: str) -> None:
    kind = SecretKind("sk-", PEPPER)
    nothing = kind.digest_of_any("")
    assert kind.digest_of_any(text) == nothing
    secret = kind.new()
    assert kind.digest_of_any(secret) == kind.digest(secret) != nothing


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
