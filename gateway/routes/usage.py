"""What was used, and what it cost: in sums, or as one line of CSV for each generation."""

import time
from typing import Annotated, Any, get_args

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response, StreamingResponse

from gateway.auth import is_admin
from gateway.ports import GatewayPorts
from gateway.routes.access import Access, needs
from gateway.routes.shapes import IdFilter, usage_bucket
from gateway.usage_csv import lines
from gateway.usage_period import moment, month
from services.common.account_messages import Principal
from services.common.errors import Forbidden, InvalidRequest
from services.common.usage_messages import BucketSize, Grouping, UsageQuery

DAY_S = 24 * 3600.0
DEFAULT_DAYS = 30
MOST_DAYS_BY_HOUR = 92
Moment = Annotated[str | None, Query(max_length=40, description="Unix seconds, or an ISO date or time (UTC)")]


class Filters:
    """The query parameters that both forms have."""

    def __init__(
        self, start: Moment = None, end: Moment = None, model: IdFilter = None, key_id: IdFilter = None,
        user_id: IdFilter = None, project: IdFilter = None,
    ):  # fmt: skip
        now = time.time()
        self.end = moment(end, "end") if end else now + 1
        self.start = moment(start, "start") if start else self.end - DEFAULT_DAYS * DAY_S
        if self.start >= self.end:
            raise InvalidRequest("start must come before end.", param="start")
        self.named = {"model": model, "key_id": key_id, "user_id": user_id, "project": project}

    def query(self, who: Principal, **more: Any) -> UsageQuery:
        """Errors: `Forbidden` for a member who asks for somebody else's."""
        named: dict[str, Any] = dict(self.named)
        if not _sees_all(who):
            if named["user_id"] not in (None, who.user_id):
                raise Forbidden("Members see their own usage only.", param="user_id")
            named["user_id"] = who.user_id
        return UsageQuery(tenant=who.tenant, start=self.start, end=self.end, **named, **more)


def router(ports: GatewayPorts, prefix: str, access: Access) -> APIRouter:
    routes = APIRouter(prefix=prefix, tags=["usage"])
    Reader = Annotated[Principal, Depends(needs(access, "usage.read"))]  # noqa: N806 (a type)
    Asked = Annotated[Filters, Depends(Filters)]  # noqa: N806

    @routes.get("/usage")
    async def usage(
        who: Reader, asked: Asked, bucket: BucketSize = "day", group_by: Annotated[str, Query(max_length=200)] = ""
    ) -> dict[str, Any]:
        if bucket == "hour" and asked.end - asked.start > MOST_DAYS_BY_HOUR * DAY_S:
            raise InvalidRequest(f"By the hour, ask for {MOST_DAYS_BY_HOUR} days at most.", param="bucket")
        query = asked.query(who, bucket=bucket, group_by=_groupings(group_by))
        data = [usage_bucket(total) for total in await ports.ledger.totals(query)]
        return {"object": "list", "data": data, "currency": ports.currency, "budget": await _budget(ports, who)}

    @routes.get("/usage.csv", response_class=StreamingResponse)
    async def usage_csv(who: Reader, asked: Asked) -> Response:
        query = asked.query(who)
        first = await ports.ledger.records(query)  # so that what fails at once is a status and not half a file
        headers = {"content-disposition": 'attachment; filename="usage.csv"', "cache-control": "no-store"}
        body = lines(ports.ledger, query, first, ports.currency)
        return StreamingResponse(body, media_type="text/csv; charset=utf-8", headers=headers)

    return routes


def _sees_all(who: Principal) -> bool:
    return not who.user_id or is_admin(who)


def _groupings(text: str) -> tuple[Grouping, ...]:
    known: tuple[Grouping, ...] = get_args(Grouping)
    asked = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in asked:
        if name not in known:
            raise InvalidRequest(f"group_by takes {', '.join(known)}.", param="group_by")
    return tuple(name for name in known if name in asked)


async def _budget(ports: GatewayPorts, who: Principal) -> dict[str, int | None]:
    """This month's. Members see what they spent, and not how much the others have left."""
    now = time.time()
    query = UsageQuery(tenant=who.tenant, start=month(now).start, end=now + 1)
    if not _sees_all(who):
        return {"limit": None, "spent": await ports.ledger.spent(msgspec.structs.replace(query, user_id=who.user_id))}
    limits = (who.monthly_budget, ports.tiers.tier(who.tier).monthly_budget)
    limit = min((x for x in limits if x is not None), default=None)
    return {"limit": limit, "spent": await ports.ledger.spent(query)}
