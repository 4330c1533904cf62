"""The web app's turns: the second dialect of the turn engine. See docs/web-api.md."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Query
from pydantic import Field
from starlette.responses import JSONResponse, Response, StreamingResponse

from gateway.dialects.wire import Wire
from gateway.exchange import PING
from gateway.ports import GatewayPorts
from gateway.routes.access import web_session
from gateway.routes.conversations import Model, Parameters, message_json
from gateway.settings import GatewaySettings
from gateway.sse import frame
from services.chat.conversation import StartTurn
from services.chat.runner import Progress
from services.common.account_messages import Principal
from services.common.errors import InvalidRequest
from services.common.messages import MessageRef, TextDelta

MessageId = Annotated[str, Field(pattern=r"^msg_[0-9a-f]{32}$")]


class TurnBody(Wire):
    content: Annotated[str, Field(max_length=1_000_000, pattern=r"\S")] | None = None
    parent_id: MessageId | None = None
    id: MessageId | None = None
    regenerate: MessageId | None = None
    continue_: MessageId | None = Field(None, alias="continue")
    model: Model | None = None
    parameters: Parameters | None = None

    def start(self, who: Principal, conversation_id: str) -> StartTurn:
        if sum(x is not None for x in (self.content, self.regenerate, self.continue_)) != 1:
            raise InvalidRequest("Give exactly one of content, regenerate and continue.", param="content")
        return StartTurn(
            principal=who, conversation_id=conversation_id, content=self.content, parent_id=self.parent_id,
            message_id=self.id, regenerate=self.regenerate, continue_id=self.continue_, model=self.model or None,
            parameters=None if self.parameters is None else self.parameters.given(),
        )  # fmt: skip


def router(ports: GatewayPorts, settings: GatewaySettings) -> APIRouter:
    routes = APIRouter(tags=["web app"])
    Caller = Annotated[Principal, Depends(web_session(ports.auth))]  # noqa: N806 (a type)

    @routes.post("/api/conversations/{conversation_id}/turns", status_code=201)
    async def start(conversation_id: str, body: TurnBody, who: Caller) -> Response:
        started = await ports.conversation_turns.start(body.start(who, conversation_id))
        user = message_json(started.user) if started.user else None
        return JSONResponse({"user": user, "answer": message_json(started.answer)}, 201 if started.new else 200)

    @routes.get("/api/turns/{answer_id}/events", response_class=StreamingResponse)
    async def events(
        answer_id: str, who: Caller, start: Annotated[int, Query(alias="from", ge=0)] = 0,
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
    ) -> Response:  # fmt: skip
        steps = ports.runner.follow(
            MessageRef(who.space, answer_id), start if last_event_id is None else last_event_id, settings.heartbeat
        )
        first = await anext(steps)  # so that a missing turn is a status and not a broken stream
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        return StreamingResponse(_frames(first, steps), media_type="text/event-stream", headers=headers)

    @routes.post("/api/turns/{answer_id}/stop", status_code=204)
    async def stop(answer_id: str, who: Caller) -> Response:
        await ports.runner.stop(MessageRef(who.space, answer_id))
        return Response(status_code=204)

    return routes


async def _frames(first: Progress, steps: AsyncGenerator[Progress, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(steps):
        yield _frame(first)
        async for step in steps:
            yield _frame(step)


def _frame(step: Progress) -> bytes:
    if step.answer is None:
        text = "".join(e.text for e in step.events if isinstance(e, TextDelta))
        return _numbered(step.position, {"text": text}) if text else PING
    message = message_json(step.answer)
    if step.error is not None:
        return _numbered(step.position, {"error": step.error, "message": message})
    return _numbered(step.position, {"done": message})


def _numbered(position: int, payload: dict[str, Any]) -> bytes:
    return b"id: %d\n%b" % (position, frame(msgspec.json.encode(payload)))
