"""Starting a turn in a stored conversation: a new message, another answer, or more of an answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from secrets import token_hex
from typing import Literal

import msgspec
from msgspec import Struct

from services.chat.generation import Generation
from services.chat.metering import Meter
from services.chat.runner import TurnRunner
from services.chat.turn import StoredTurn
from services.common.account_messages import Principal
from services.common.errors import Conflict, InvalidRequest, NotFound
from services.common.messages import (
    Conversation,
    ConversationPatch,
    ConversationRef,
    GenerationRequest,
    Json,
    MessagePatch,
    MessageRef,
    NewMessage,
    Sampling,
    StoredMessage,
)
from services.common.ports import Conversations, Messages

TITLE_LENGTH = 60


class StartTurn(Struct, frozen=True, kw_only=True):
    """Exactly one of content, regenerate and continue_id is given."""

    principal: Principal
    conversation_id: str
    content: str | None = None
    parent_id: str | None = None
    message_id: str | None = None
    regenerate: str | None = None
    continue_id: str | None = None
    model: str | None = None
    parameters: Json | None = None

    @property
    def tenant(self) -> str:
        """As conversations know it: the caller's own space."""
        return self.principal.space


class Started(Struct, frozen=True, kw_only=True):
    user: StoredMessage | None
    answer: StoredMessage
    new: bool = True
    """False: this very message had been sent before, and nothing was started."""


class ConversationTurns:
    def __init__(
        self, conversations: Conversations, messages: Messages, generation: Generation, meter: Meter, runner: TurnRunner,
        default_model: str,
    ):  # fmt: skip
        self._conversations = conversations
        self._messages = messages
        self._generation = generation
        self._meter = meter
        self._runner = runner
        self._default_model = default_model
        self._starting: set[str] = set()

    async def start(self, ask: StartTurn) -> Started:
        """Errors: `NotFound`, `ModelNotFound`, `InvalidRequest`; `Conflict` while another turn of it is running."""
        conversation = await self._conversations.get(ConversationRef(ask.tenant, ask.conversation_id))
        if ask.message_id and (sent := await self._already_sent(ask, ask.message_id)):
            return sent
        with self._alone(conversation.id):
            model = ask.model or conversation.model or self._default_model
            self._meter.require_permitted(ask.principal, model)
            await self._generation.engine(model, ask.principal.tenant)
            conversation = await self._keep_choices(conversation, ask, model)
            user, answer = await self._prepare(ask, model)
            sampling = msgspec.convert(conversation.parameters, Sampling)
            request = GenerationRequest(
                model=model, sampling=sampling, tenant=ask.principal.tenant, request_id=f"{answer.id}-{token_hex(4)}"
            )
            self._runner.start(
                ask.principal, request, StoredTurn(answer=answer, system_prompt=conversation.system_prompt)
            )
        return Started(user=user, answer=answer)

    async def _already_sent(self, ask: StartTurn, message_id: str) -> Started | None:
        try:
            user = await self._messages.get(MessageRef(ask.tenant, message_id))
        except NotFound:
            return None
        if user.conversation_id != ask.conversation_id or not _stored_as(user.content, ask.content):
            raise Conflict("Another message has this id.", param="id")
        stored = await self._messages.all(ConversationRef(ask.tenant, ask.conversation_id))
        answer = next((m for m in stored if m.parent_id == user.id), None)
        if answer is None:  # we died between storing the question and its answer
            return None if ask.conversation_id in self._starting else await self._answer_to(user, ask)
        return Started(user=user, answer=answer, new=False)

    async def _answer_to(self, user: StoredMessage, ask: StartTurn) -> Started:
        retry = msgspec.structs.replace(ask, content=None, message_id=None, parent_id=user.id)
        return msgspec.structs.replace(await self.start(retry), user=user)

    @contextmanager
    def _alone(self, conversation_id: str) -> Iterator[None]:
        if conversation_id in self._starting or self._runner.running_in(conversation_id):
            raise Conflict("An answer is being written in this conversation. Stop it, or wait for its end.")
        self._starting.add(conversation_id)
        try:
            yield
        finally:
            self._starting.discard(conversation_id)

    async def _keep_choices(self, conversation: Conversation, ask: StartTurn, model: str) -> Conversation:
        title = _title(ask.content) if ask.content and not conversation.title else None
        parameters = ask.parameters if ask.parameters is not None else conversation.parameters
        if title is None and model == conversation.model and parameters == conversation.parameters:
            return conversation
        return await self._conversations.update(
            ConversationPatch(
                tenant=ask.tenant, id=conversation.id, title=title, model=model, parameters=parameters
            )
        )  # fmt: skip

    async def _prepare(self, ask: StartTurn, model: str) -> tuple[StoredMessage | None, StoredMessage]:
        if ask.continue_id:
            return None, await self._reopen(ask, ask.continue_id)
        if ask.regenerate:
            former = await self._own(ask, ask.regenerate, "assistant", "regenerate")
            return None, await self._append(ask, former.parent_id, "assistant", model)
        if ask.content is None:
            return None, await self._append(ask, ask.parent_id, "assistant", model)
        user = await self._append(ask, ask.parent_id, "user", "", ask.content)
        return user, await self._append(ask, user.id, "assistant", model)

    async def _append(
        self, ask: StartTurn, parent: str | None, role: Literal["user", "assistant"], model: str, content: str = ""
    ) -> StoredMessage:
        return await self._messages.append(
            NewMessage(
                tenant=ask.tenant, conversation_id=ask.conversation_id, parent_id=parent, role=role, content=content,
                model=model, status="running" if role == "assistant" else "complete",
                id=ask.message_id if role == "user" else None,
            )
        )  # fmt: skip

    async def _reopen(self, ask: StartTurn, answer_id: str) -> StoredMessage:
        answer = await self._own(ask, answer_id, "assistant", "continue")
        if answer.status == "complete" and answer.finish_reason != "length":
            raise InvalidRequest("This answer is complete; there is nothing to continue.", param="continue")
        patch = MessagePatch(tenant=ask.tenant, id=answer.id, status="running", error="", finish_reason="")
        return await self._messages.update(patch)

    async def _own(self, ask: StartTurn, message_id: str, role: str, param: str) -> StoredMessage:
        message = await self._messages.get(MessageRef(ask.tenant, message_id))
        if message.conversation_id != ask.conversation_id or message.role != role:
            raise NotFound(f"There is no {role} message `{message_id}` in this conversation.", param=param)
        return message


def _stored_as(stored: str, sent: str | None) -> bool:
    """A store puts U+FFFD in the place of a character that it cannot hold."""
    if sent is None or len(stored) != len(sent):
        return False
    return stored == sent or all(a in (b, "\ufffd") for a, b in zip(stored, sent, strict=True))


def _title(content: str) -> str:
    """The first line of the first message, cut at a word. No call to the model: a title must not cost a generation."""
    line = next((line.strip() for line in content.splitlines() if line.strip()), "New chat")
    return line if len(line) <= TITLE_LENGTH else line[:TITLE_LENGTH].rsplit(" ", 1)[0] + "…"
