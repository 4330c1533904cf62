from hypothesis import given
from hypothesis import strategies as st

from services.common.texts import new_id, storable
from services.conversations.text import folded, is_id


@given(st.text(st.characters()))
def test_storable_text_keeps_its_length_and_every_sound_character(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert "\x00" not in stored
    assert len(stored) == len(text)
    assert storable(stored) == stored
    assert all(after in (before, "\ufffd") for before, after in zip(text, stored, strict=True))


@given(st.text(), st.text(), st.text())
def test_a_part_stays_a_part_when_folded(before: str, part: str, after: str) -> None:
    assert folded(part) in folded(before + part + after)


def test_ids_are_told_by_prefix_and_shape() -> None:
    made = new_id("conv")
    assert is_id(made, "conv")
    assert not is_id(made, "msg")
    assert not is_id(made + "\n", "conv")
    assert not is_id(made.upper(), "conv")
