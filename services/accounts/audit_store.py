"""Every query on the audit log. An entry is added in the transaction of the deed it tells of."""

import msgspec
from sqlalchemy import insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.accounts.chain import GENESIS, Chain
from services.accounts.tables import audit
from services.accounts.text import storable
from services.common.account_messages import AuditEntry

_canonical = msgspec.json.Encoder(order="sorted").encode
_TEXTS = ("tenant", "actor", "action", "target")


async def add(db: AsyncConnection, chain: Chain, entry: AuditEntry) -> AuditEntry:
    """The entry with its place in the chain. `db` is in a transaction of `services.common.sql.writing`.

    Add it last: on PostgreSQL other appenders wait from here until the transaction ends.
    """
    if db.dialect.name == "postgresql":
        await db.execute(text("SELECT pg_advisory_xact_lock(hashtext('antiphon audit log'))"))
    last = (await db.execute(select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1))).one_or_none()
    details = _canonical(entry.details).decode()
    texts = {name: storable(getattr(entry, name)) for name in _TEXTS}
    entry = msgspec.structs.replace(entry, **texts, seq=last.seq + 1 if last else 1)
    entry = msgspec.structs.replace(entry, hash=chain.hash(last.hash if last else GENESIS, entry, details))
    await db.execute(insert(audit).values(msgspec.structs.asdict(entry) | {"details": details}))
    return entry
