"""The web app's conversations. See docs/web-api.md."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query
from pydantic import Field
from starlette.responses import Response

from gateway.dialects.wire import Wire
from gateway.ports import GatewayPorts
from gateway.routes.access import web_session
from services.chat.permission import may_use
from services.common.account_messages import AuditEntry, Principal
from services.common.errors import NotFound
from services.common.messages import (
    Conversation,
    ConversationPatch,
    ConversationQuery,
    ConversationRef,
    MessageRef,
    NewConversation,
    StoredMessage,
)

Prompt = Annotated[str, Field(max_length=100_000)]
Model = Annotated[str, Field(max_length=256)]


class Parameters(Wire):
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    max_tokens: int | None = Field(None, ge=1, le=10_000_000)
    seed: int | None = Field(None, ge=0, lt=2**31)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)

    def given(self) -> dict[str, Any]:
        return self.model_dump(exclude_none=True)


class CreateConversation(Wire):
    model: Model = ""
    system_prompt: Prompt = ""
    parameters: Parameters = Parameters()


class PatchConversation(Wire):
    title: Annotated[str, Field(max_length=200, pattern=r"\S")] | None = None
    model: Model | None = None
    system_prompt: Prompt | None = None
    parameters: Parameters | None = None
    leaf_id: str | None = None


def router(ports: GatewayPorts) -> APIRouter:
    routes = APIRouter(tags=["web app"])
    Caller = Annotated[Principal, Depends(web_session(ports.auth))]  # noqa: N806 (a type)
    conversations, messages, runner = ports.conversations, ports.messages, ports.runner

    @routes.get("/api/models")
    async def models(who: Caller) -> dict[str, Any]:
        tier = ports.tiers.tier(who.tier)
        cards = [c for c in await ports.router.models() if c.kind == "chat" and may_use(c.id, tier, who)]
        data = [{"id": c.id, "context_window": c.context_window} for c in cards]
        return {"data": data, "default": ports.default_model}

    @routes.get("/api/conversations")
    async def find(
        who: Caller, q: Annotated[str, Query(max_length=500)] = "", before: float | None = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
    ) -> dict[str, Any]:  # fmt: skip
        query = ConversationQuery(tenant=who.space, text=q, before=before, limit=limit)
        page = await conversations.find(query)
        return {"data": [conversation_json(c) for c in page.items], "more": page.more}

    @routes.post("/api/conversations", status_code=201)
    async def create(body: CreateConversation, who: Caller) -> dict[str, Any]:
        made = await conversations.create(
            NewConversation(
                tenant=who.space, model=body.model, system_prompt=body.system_prompt, parameters=body.parameters.given()
            )
        )  # fmt: skip
        return conversation_json(made)

    @routes.get("/api/conversations/{conversation_id}")
    async def get(conversation_id: str, who: Caller) -> dict[str, Any]:
        ref = ConversationRef(who.space, conversation_id)
        found = conversation_json(await conversations.get(ref))
        return found | {"messages": [message_json(m) for m in await messages.all(ref)]}

    @routes.patch("/api/conversations/{conversation_id}")
    async def patch(conversation_id: str, body: PatchConversation, who: Caller) -> dict[str, Any]:
        if body.leaf_id is not None:
            leaf = await messages.get(MessageRef(who.space, body.leaf_id))
            if leaf.conversation_id != conversation_id:
                raise NotFound(f"There is no message `{body.leaf_id}` in this conversation.", param="leaf_id")
        changed = await conversations.update(
            ConversationPatch(
                tenant=who.space, id=conversation_id, title=body.title, model=body.model, leaf_id=body.leaf_id,
                system_prompt=body.system_prompt, parameters=None if body.parameters is None else body.parameters.given(),
            )
        )  # fmt: skip
        return conversation_json(changed)

    @routes.delete("/api/conversations/{conversation_id}", status_code=204)
    async def delete(conversation_id: str, who: Caller) -> Response:
        ref = ConversationRef(who.space, conversation_id)
        await conversations.get(ref)
        if answer_id := runner.running_in(conversation_id):
            await runner.stop(MessageRef(who.space, answer_id))
        await conversations.delete(ref)
        await ports.audit.append(
            AuditEntry(tenant=who.tenant, actor=who.actor, action="conversation.delete", target=conversation_id)
        )
        return Response(status_code=204)

    return routes


def conversation_json(c: Conversation) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.structs.asdict(c)
    return {k: v for k, v in whole.items() if k != "tenant"}


def message_json(m: StoredMessage) -> dict[str, Any]:
    whole: dict[str, Any] = msgspec.structs.asdict(m)
    return whole | {"error": m.error or None, "finish_reason": m.finish_reason or None}
