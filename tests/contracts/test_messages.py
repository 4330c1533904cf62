"""What `Messages` promises, wherever it runs."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.common import messages as m
from services.common.errors import Conflict, InvalidRequest, NotFound
from tests.support.conversations import House, opened, ref

examples = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
async def house(place: str, database_url: str) -> AsyncIterator[House]:
    async with opened(place, database_url) as house:
        yield house


async def test_appending_makes_the_leaf_and_the_time(house: House) -> None:
    made = await house.start("a")
    question = await house.say(made, "Why?")
    answer = await house.messages.append(
        m.NewMessage(
            tenant="a",
            conversation_id=made.id,
            parent_id=question.id,
            role="assistant",
            content="Be",
            status="running",
            model="m",
        )
    )
    assert question.id.startswith("msg_")
    assert made.updated < question.created < answer.created
    now = await house.conversations.get(ref(made))
    assert (now.leaf_id, now.updated) == (answer.id, answer.created)
    done = await house.messages.update(
        m.MessagePatch(
            tenant="a", id=answer.id, content="Because.", status="complete", finish_reason="stop", usage={"ttft_s": 0.5}
        )
    )
    assert (done.content, done.status, done.finish_reason, done.model) == ("Because.", "complete", "stop", "m")
    assert done.usage == {"ttft_s": 0.5}
    failed = await house.messages.update(m.MessagePatch(tenant="a", id=answer.id, status="error", error="No worker."))
    assert (failed.content, failed.error) == ("Because.", "No worker.")
    assert await house.messages.get(m.MessageRef("a", answer.id)) == failed
    assert await house.messages.path(m.MessageRef("a", answer.id)) == (question, failed)


async def test_a_chosen_id_is_kept_and_taken_once(house: House) -> None:
    made, other = await house.start("a"), await house.start("b")
    chosen = "msg_" + "f" * 32
    assert (await house.say(made, "1", id=chosen)).id == chosen
    for conversation in (made, other):
        with pytest.raises(Conflict):
            await house.say(conversation, "2", id=chosen)
    with pytest.raises(InvalidRequest) as failure:
        await house.say(made, "3", id="msg_short")
    assert failure.value.param == "id"
    assert [message.content for message in await house.messages.all(ref(made))] == ["1"]
    assert (await house.conversations.get(ref(other))).leaf_id is None


async def test_a_parent_or_leaf_is_of_the_same_conversation(house: House) -> None:
    one, two = await house.start("a"), await house.start("a")
    elsewhere = await house.say(two, "there")
    with pytest.raises(NotFound):
        await house.say(one, "here", parent=elsewhere)
    with pytest.raises(NotFound):
        await house.conversations.update(m.ConversationPatch(tenant="a", id=one.id, title="x", leaf_id=elsewhere.id))
    assert await house.conversations.get(ref(one)) == one


async def test_many_writers_at_once_keep_one_tree(house: House) -> None:
    made = await house.start("a")
    root = await house.say(made, "root")
    said = await asyncio.gather(*(house.say(made, str(number), parent=root) for number in range(40)))
    stored = await house.messages.all(ref(made))
    assert sorted(message.id for message in stored) == sorted(message.id for message in (root, *said))
    times = [message.created for message in stored]
    assert times == sorted(set(times))
    assert (await house.conversations.get(ref(made))).leaf_id == stored[-1].id
    for message in said:
        assert await house.messages.path(m.MessageRef("a", message.id)) == (root, message)


async def test_the_same_id_sent_many_times_at_once_is_stored_once(house: House) -> None:
    made = await house.start("a")
    chosen = "msg_" + "e" * 32
    tries = await asyncio.gather(*(house.say(made, "hi", id=chosen) for _ in range(10)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in tries) == ["Conflict"] * 9 + ["StoredMessage"]
    assert len(await house.messages.all(ref(made))) == 1


async def test_a_conversation_deleted_while_written_to_leaves_nothing(house: House) -> None:
    for _ in range(5):
        made = await house.start("a")
        outcomes = await asyncio.gather(
            *(house.say(made) for _ in range(5)), house.conversations.delete(ref(made)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} <= {m.StoredMessage, NotFound, type(None)}
        with pytest.raises(NotFound):
            await house.messages.all(ref(made))


async def test_a_long_branch_is_read_whole(house: House) -> None:
    made = await house.start("a")
    last: m.StoredMessage | None = None
    for number in range(300):
        last = await house.say(made, str(number), parent=last)
    assert last is not None
    path = await house.messages.path(m.MessageRef("a", last.id))
    assert [message.content for message in path] == [str(number) for number in range(300)]


@dataclass
class Model:
    """What a tenant should have."""

    nodes: dict[str, dict[str, m.StoredMessage]] = field(default_factory=dict)
    leaf: dict[str, str | None] = field(default_factory=dict)

    def path(self, conversation: str, id: str | None) -> tuple[m.StoredMessage, ...]:
        node = self.nodes[conversation].get(id or "")
        return (*self.path(conversation, node.parent_id), node) if node else ()


steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "append", "append", "append", "update", "leaf", "delete"]),
        st.integers(0, 99),
        st.integers(0, 99),
        st.text(max_size=5).filter(lambda text: "\x00" not in text and text.isprintable()),
    ),
    max_size=25,
)


@examples
@given(steps)
async def test_any_sequence_of_steps_keeps_the_tree(house: House, steps: list[tuple[str, int, int, str]]) -> None:
    tenant, model = house.tenant(), Model()
    for step in steps:
        await _take(house, tenant, model, *step)
    page = await house.conversations.find(m.ConversationQuery(tenant=tenant))
    assert {item.id: item.leaf_id for item in page.items} == model.leaf
    for id, nodes in model.nodes.items():
        assert await house.messages.all(m.ConversationRef(tenant, id)) == tuple(nodes.values())
        for node in nodes:
            assert await house.messages.path(m.MessageRef(tenant, node)) == model.path(id, node)


async def _take(house: House, tenant: str, model: Model, action: str, which: int, node: int, text: str) -> None:
    if action == "create" or not model.nodes:
        made = await house.start(tenant)
        model.nodes[made.id], model.leaf[made.id] = {}, None
        return
    id = list(model.nodes)[which % len(model.nodes)]
    nodes = list(model.nodes[id].values())
    chosen = nodes[node % len(nodes)] if nodes else None
    if action == "append":
        parent = None if node % 5 == 0 else chosen
        said = await house.say(m.Conversation(id=id, tenant=tenant), text, parent=parent)
        model.nodes[id][said.id] = said
        model.leaf[id] = said.id
    elif action == "update" and chosen:
        patch = m.MessagePatch(tenant=tenant, id=chosen.id, content=text)
        model.nodes[id][chosen.id] = await house.messages.update(patch)
    elif action == "leaf" and chosen:
        await house.conversations.update(m.ConversationPatch(tenant=tenant, id=id, leaf_id=chosen.id))
        model.leaf[id] = chosen.id
    elif action == "delete" and node % 3 == 0:
        await house.conversations.delete(m.ConversationRef(tenant, id))
        del model.nodes[id], model.leaf[id]
