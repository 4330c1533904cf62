"""What `Conversations` promises, wherever it runs."""

import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.common import messages as m
from services.common.errors import InvalidRequest, NotFound
from tests.support.conversations import House, opened, ref

MISSING_CONVERSATION = "conv_" + "0" * 32
MISSING_MESSAGE = "msg_" + "0" * 32
NOT_IDS = [
    "",
    "x",
    "conv_",
    "msg_\x00",
    "conv_" + "G" * 32,
    "'; DROP TABLE messages; --",
    "é" * 10,
    "msg_" + "a" * 10_000,
]

examples = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        yield house


async def test_a_conversation_comes_back_as_it_was_made(house: House) -> None:
    before = time.time()
    made = await house.conversations.create(
        m.NewConversation(
            tenant="a", title="T", model="m", system_prompt="Be brief.", parameters={"top_p": 0.1, "note": "a\x00b"}
        )
    )
    assert made.id.startswith("conv_")
    assert len(made.id) == 37
    assert before <= made.created == made.updated <= time.time()
    assert made.leaf_id is None
    assert await house.conversations.get(ref(made)) == made


async def test_what_is_missing_and_what_is_anothers_look_alike(house: House) -> None:
    theirs = await house.start("theirs")
    message = await house.say(theirs, "secret")
    mine = await house.start("mine")
    told = set()
    for id in [theirs.id, MISSING_CONVERSATION, *NOT_IDS]:
        named = m.ConversationRef("mine", id)
        for call in (
            house.conversations.get(named),
            house.conversations.update(m.ConversationPatch(tenant="mine", id=id, title="x")),
            house.conversations.delete(named),
            house.messages.all(named),
            house.messages.append(m.NewMessage(tenant="mine", conversation_id=id, parent_id=None, role="user")),
        ):
            with pytest.raises(NotFound) as failure:
                await call
            told.add(failure.value.message)
    assert len(told) == 1
    told.clear()
    for id in [message.id, MISSING_MESSAGE, *NOT_IDS]:
        for call in (
            house.messages.get(m.MessageRef("mine", id)),
            house.messages.path(m.MessageRef("mine", id)),
            house.messages.update(m.MessagePatch(tenant="mine", id=id, content="x")),
            house.conversations.update(m.ConversationPatch(tenant="mine", id=mine.id, leaf_id=id)),
            house.messages.append(m.NewMessage(tenant="mine", conversation_id=mine.id, parent_id=id, role="user")),
        ):
            with pytest.raises(NotFound) as failure:
                await call
            told.add(failure.value.message)
    assert len(told) == 1
    assert await house.messages.all(ref(theirs)) == (message,)
    assert await house.messages.all(ref(mine)) == ()


async def test_a_patch_leaves_what_it_does_not_name(house: House) -> None:
    made = await house.conversations.create(m.NewConversation(tenant="a", title="T", parameters={"seed": 1}))
    titled = await house.conversations.update(m.ConversationPatch(tenant="a", id=made.id, title="New"))
    assert (titled.title, titled.parameters) == ("New", {"seed": 1})
    assert titled.updated > made.updated
    emptied = await house.conversations.update(
        m.ConversationPatch(tenant="a", id=made.id, title="", model="m", system_prompt="s", parameters={})
    )
    assert (emptied.title, emptied.model, emptied.system_prompt, emptied.parameters) == ("", "m", "s", {})
    assert await house.conversations.get(ref(made)) == emptied


async def test_showing_another_branch_does_not_make_a_conversation_new(house: House) -> None:
    made = await house.start("a")
    first, _ = await house.say(made, "1"), await house.say(made, "2")
    before = await house.conversations.get(ref(made))
    after = await house.conversations.update(m.ConversationPatch(tenant="a", id=made.id, leaf_id=first.id))
    assert (after.leaf_id, after.updated) == (first.id, before.updated)
    assert await house.conversations.get(ref(made)) == after


async def test_deleting_takes_the_messages_along(house: House) -> None:
    made, kept = await house.start("a", "gone"), await house.start("a", "kept")
    message = await house.say(made, "needle")
    stays = await house.say(kept, "hay")
    await house.conversations.delete(ref(made))
    with pytest.raises(NotFound):
        await house.messages.get(m.MessageRef("a", message.id))
    assert await house.titles("a", "needle") == []
    assert await house.titles("a") == ["kept"]
    assert await house.messages.all(ref(kept)) == (stays,)
    again = await house.say(kept, "free again", parent=stays, id=message.id)
    assert again.id == message.id
    with pytest.raises(NotFound):
        await house.conversations.delete(ref(made))


async def test_pages_are_newest_first_and_join_without_a_seam(house: House) -> None:
    made = [await house.start("a", str(number)) for number in range(7)]
    await house.start("b", "not mine")
    await house.say(made[2], "now it is the newest")
    expected = ["2", "6", "5", "4", "3", "1", "0"]
    assert await house.titles("a") == expected
    seen: list[str] = []
    before = None
    for _ in range(4):
        page = await house.conversations.find(m.ConversationQuery(tenant="a", before=before, limit=2))
        seen += [item.title for item in page.items]
        before = page.items[-1].updated
        assert page.more == (len(seen) < 7)
    assert seen == expected


@pytest.mark.parametrize("limit", [0, -1, 10**6])
async def test_a_page_has_a_size(house: House, limit: int) -> None:
    with pytest.raises(InvalidRequest) as failure:
        await house.conversations.find(m.ConversationQuery(tenant="a", limit=limit))
    assert failure.value.param == "limit"


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("100% sure", "0% S"), ("snake_case", "E_C"), ("C:\\Temp", "c:\\t"), ("Straße", "STRASSE"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"), ("Ångström", "åNGSTRÖM"), ("привет", "ПРИ"), ("it's", "T'S"), ('a "b"', '"B"'),
        ("日本語", "本"), ("👩‍👩‍👧", "👧"), ("line\nbreak", "E\nB"), ("a/b", "A/B"), ("[x]*?", "[X]*?"),
        ("$1 :text", ":TEXT"),
    ],
)  # fmt: skip
async def test_search_finds_text_as_it_is_written(house: House, text: str, query: str) -> None:
    await house.start("a", f"title {text}!")
    talk = await house.start("a", "by message")
    await house.say(talk, f"… {text} …")
    await house.start("a", "abc")
    await house.start("b", text)
    assert await house.titles("a", query) == ["by message", f"title {text}!"]


@pytest.mark.parametrize("query", ["%", "_", "\\", "' OR 1=1 --", "a%c", "a_c", "*", "x" * 100_000, "\x00"])
async def test_search_finds_nothing_that_is_not_there(house: House, query: str) -> None:
    await house.say(await house.start("a", "abc"), "abc")
    assert await house.titles("a", query) == []


texts = st.text(st.sampled_from("aAbB%_\\'\"/é Éßſİıς$:;\n") | st.characters(codec="utf-8", exclude_characters="\x00"))


@examples
@given(texts, texts, st.data())
async def test_search_is_a_substring_whatever_the_case(
    house: House, title: str, content: str, data: st.DataObject
) -> None:
    tenant = house.tenant()
    await house.say(await house.start(tenant, title), content)
    start = data.draw(st.integers(0, len(content)))
    part = content[start : data.draw(st.integers(start, len(content)))]
    for query in (part, part.upper(), part.casefold(), data.draw(texts)):
        there = query.casefold() in title.casefold() or query.casefold() in content.casefold()
        assert await house.titles(tenant, query) == ([title] if there else [])


async def test_what_cannot_be_stored_is_replaced_at_its_place(house: House) -> None:
    made = await house.start("a", "x\x00y")
    assert made.title == "x\ufffdy"
    message = await house.say(made, "p\x00q")
    assert message.content == "p\ufffdq"
    changed = await house.messages.update(
        m.MessagePatch(tenant="a", id=message.id, content="\x00", usage={"k": "\x00"})
    )
    assert (changed.content, changed.usage) == ("\ufffd", {"k": "\x00"})
    assert await house.messages.get(m.MessageRef("a", message.id)) == changed
    assert await house.conversations.get(ref(made)) == await house.conversations.update(
        m.ConversationPatch(tenant="a", id=made.id)
    )
