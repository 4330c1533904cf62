"""Everything that a running installation has written, as bytes to search, by the name of the place."""

import asyncio
import base64
import re
import sqlite3
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import asyncpg
import redis

Places = dict[str, bytes]
TERMINAL = ("stdout.log",)
"""What the server shows to whoever starts it: the first key and the link, which are not logged."""
PEPPER = "pepper"
CONTENT = re.compile(r"table (conversations|messages)$|^file (antiphon\.db.*|turns/.*|idempotency/.*)$|^redis ")
"""Where prompts and answers may be; of the database's file, its tables are looked at one by one."""


def files(home: Path) -> Places:
    found = {}
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if path.is_file() and name not in (*TERMINAL, PEPPER):
            found[f"file {name}"] = plain(path.read_bytes())
    return found


def plain(data: bytes) -> bytes:
    """With what an idempotency record holds compressed."""
    with suppress(zlib.error):
        return data + zlib.decompress(data[32:])
    return data


def sqlite_tables(home: Path) -> Places:
    with closing(sqlite3.connect(f"file:{home / 'antiphon.db'}?mode=ro", uri=True)) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {f"table {name}": _rows(db.execute(f'SELECT * FROM "{name}"')) for name in names}


def postgres_tables(url: str) -> Places:
    async def dumped() -> Places:
        db = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            names = [row[0] for row in await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
            return {f"table {n}": _rows(map(tuple, await db.fetch(f'SELECT * FROM "{n}"'))) for n in names}
        finally:
            await db.close()

    with ThreadPoolExecutor(1) as pool:  # because the test's loop may already be the current one
        return pool.submit(asyncio.run, dumped()).result()


def redis_keys(url: str) -> Places:
    with redis.Redis.from_url(url) as client:
        found = {}
        for key in client.scan_iter(count=1000):
            name: bytes = key
            found[f"redis {name!r}"] = name + b"\n" + plain(client.dump(name) or b"") + _hash(client, name)
        return found


def _hash(client: redis.Redis, name: bytes) -> bytes:
    with suppress(redis.ResponseError):
        return b"\n".join(plain(value) for value in client.hgetall(name).values())
    return b""


def _rows(rows: Iterable[tuple[object, ...]]) -> bytes:
    """Fields apart from one another, and as they are: not as Python would write them."""
    return b"\n".join(b"\t".join(str(field).encode("utf-8", "replace") for field in row) for row in rows)


def forms(secret: str) -> set[bytes]:
    """What may be left of it: a part, or all of it in other letters."""
    whole = secret.encode()
    middle = secret[4:24].encode() if len(secret) >= 24 else whole
    return {middle, whole, quote(secret, safe="").encode(), base64.b64encode(whole).rstrip(b"="), whole.hex().encode()}


def places_of(needle: str, places: Places) -> list[str]:
    return [name for name, data in places.items() if any(form in data for form in forms(needle))]
