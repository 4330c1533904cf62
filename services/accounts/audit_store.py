"""Every query on the audit log. An entry is added in the transaction of the deed it tells of."""

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Row, insert, select, text, true
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts.chain import GENESIS, Chain, Walk
from services.accounts.tables import audit
from services.common.account_messages import AuditEntry, AuditQuery, AuditReport
from services.common.texts import storable

BATCH = 1000
_canonical = msgspec.json.Encoder(order="sorted").encode


async def add(db: AsyncConnection, chain: Chain, entry: AuditEntry) -> AuditEntry:
    """The entry with its place in the chain. `db` is in a transaction of `services.common.sql.writing`.

    Add it last: on PostgreSQL other appenders wait from here until the transaction ends.
    """
    if db.dialect.name == "postgresql":
        await db.execute(text("SELECT pg_advisory_xact_lock(hashtext('antiphon audit log'))"))
    last = (await db.execute(select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1))).one_or_none()
    row = msgspec.structs.asdict(entry) | {"seq": last.seq + 1 if last else 1}
    row |= {name: storable(row[name]) for name in ("tenant", "actor", "action", "target")}
    row["details"] = _canonical(entry.details).decode()
    row["hash"] = chain.hash(last.hash if last else GENESIS, row)
    await db.execute(insert(audit).values(row))
    return AuditEntry(**row | {"details": entry.details})


async def find(db: AsyncConnection, query: AuditQuery) -> Sequence[AuditEntry]:
    """Newest first."""
    chosen = (
        select(audit)
        .where(true() if query.tenant is None else audit.c.tenant == storable(query.tenant))
        .where(true() if query.before is None else audit.c.seq < query.before)
        .where(true() if query.actor is None else audit.c.actor == storable(query.actor))
        .where(true() if query.action is None else audit.c.action == storable(query.action))
    )
    rows = await db.execute(chosen.order_by(audit.c.seq.desc()).limit(query.limit))
    return tuple(_entry(row) for row in rows)


async def verify(db: AsyncConnection, chain: Chain) -> AuditReport:
    """Reads the whole log in one snapshot, a batch at a time."""
    walk = Walk(chain)
    result = await db.stream(select(audit).order_by(audit.c.seq), execution_options={"yield_per": BATCH})
    async for row in result.mappings():
        if not walk.step(dict(row)):
            break
    await result.close()
    return walk.report


def _entry(row: Row[*tuple[Any, ...]]) -> AuditEntry:
    fields = dict(row._mapping)
    try:
        fields["details"] = msgspec.json.decode(fields["details"])
    except msgspec.DecodeError:
        # Somebody has changed it: the list shows so, and `verify` where.
        fields["details"] = {"unreadable": fields["details"]}
    return AuditEntry(**fields)
