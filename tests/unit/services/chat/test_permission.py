"""Which models a caller may use."""

import pytest

from services.chat.permission import may_use
from services.common.account_messages import Principal
from services.common.usage_messages import Tier


@pytest.mark.parametrize(
    ("models", "model", "may"),
    [
        (("*",), "anything/at-all", True),
        (("*",), "", True),
        (("small",), "small", True),
        (("small",), "smaller", False),
        (("small",), "a small", False),
        (("small-*",), "small-1b", True),
        (("small-*",), "small", False),
        (("*-instruct",), "big-instruct", True),
        (("a*c*e",), "abcde", True),
        (("a*c*e",), "abde", False),
        (("a", "b"), "b", True),
        (("a", "b"), "ab", False),
        (("a", "b"), "a|b", False),
        (("m.1",), "m+1", False),
        (("m[1]",), "m[1]", True),
        (("small",), "small\n", False),
        (("*",), "two\nlines", True),
        ((), "small", False),
        ((), "", False),
    ],
)
def test_a_tier_names_models_with_a_star_for_any_part(models: tuple[str, ...], model: str, may: bool) -> None:
    assert may_use(model, Tier(name="t", models=models), Principal(tenant="a")) is may


def test_a_key_names_models_out_of_those_of_its_tier() -> None:
    tier = Tier(name="t", models=("small-*", "big"))
    who = Principal(tenant="a", models=("small-1", "huge"))
    assert may_use("small-1", tier, who)
    assert not may_use("small-2", tier, who), "the key does not name it"
    assert not may_use("huge", tier, who), "the tier does not have it"
    assert not may_use("big", tier, who)


def test_a_star_in_a_key_is_a_letter() -> None:
    assert not may_use("small-1", Tier(name="t"), Principal(tenant="a", models=("small-*",)))
