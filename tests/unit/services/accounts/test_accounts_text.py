from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.accounts import text as checks
from services.common.errors import InvalidRequest
from services.common.texts import new_id, storable

CHECKS: dict[str, Callable[[str], str]] = {
    "name": checks.name,
    "email": checks.email,
    "region": checks.region,
    "id": checks.tenant,
}


@pytest.mark.parametrize(("param", "check"), CHECKS.items(), ids=CHECKS)
@settings(deadline=None)
@given(st.text() | st.from_regex("[a-z]+@[a-z.]+"))
def test_what_passes_can_be_stored_and_passes_again(param: str, check: Callable[[str], str], text: str) -> None:
    try:
        passed = check(text)
    except InvalidRequest as e:
        named = e.param
    else:
        named = param
        assert storable(passed) == passed == check(passed)
        assert "\n" not in passed
    assert named == param


@given(st.text(st.characters(exclude_categories=[])))
def test_anything_can_be_made_storable_and_keeps_its_length(text: str) -> None:
    made = storable(text)
    made.encode()
    assert "\x00" not in made
    assert len(made) == len(text)


def test_addresses_are_compared_in_lower_case() -> None:
    assert checks.email(" Ann.O'Neil+x@Example.ORG ") == "ann.o'neil+x@example.org"
    assert checks.email("ÅSA@EXAMPLE.org") == "åsa@example.org"


def test_a_tenant_has_no_slash() -> None:
    with pytest.raises(InvalidRequest):
        checks.tenant("a/user_1")


def test_ids_are_unlike() -> None:
    made = {new_id("svc") for _ in range(100)}
    assert len(made) == 100
    assert all(len(id) == 36 and id.startswith("svc_") for id in made)
