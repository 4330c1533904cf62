import asyncio
from collections.abc import Sequence

import pytest

from services.accounts.cache import FRESH_S, STALE_S, CachedKeys, CachedSessions
from services.common import account_messages as a
from services.common.errors import InvalidApiKey, NotSignedIn, Overloaded


class Asked:
    """Keys and sessions that know some secrets, count the questions, and can be slow or out of order."""

    def __init__(self, *secrets: str):
        self.known = {
            secret: a.Principal(tenant="tenant", key_id=f"key_{secret}", user_id=f"user_{secret[0]}")
            for secret in secrets
        }
        self.questions = 0
        self.down = False
        self.answer_now = asyncio.Event()
        self.answer_now.set()

    async def authenticate(self, secret: str) -> a.Principal:
        self.questions += 1
        found = self.known.get(secret)
        await self.answer_now.wait()
        if self.down:
            raise Overloaded("down")
        if found is None:
            raise InvalidApiKey("unknown")
        return found

    async def create_key(self, request: a.NewKey) -> a.ApiKey:
        raise NotImplementedError

    async def keys(self, query: a.KeyQuery) -> Sequence[a.ApiKey]:
        return ()

    async def revoke_key(self, ref: a.Ref) -> None:
        del self.known[ref.id.removeprefix("key_")]

    async def open(self, session: a.NewSession) -> str:
        raise NotImplementedError

    resolve = authenticate

    async def close(self, token: str) -> None:
        del self.known[token]

    async def close_all(self, user: a.Ref) -> None:
        self.known = {token: who for token, who in self.known.items() if who.user_id != user.id}


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_another_processes_revocation_is_seen_within_five_seconds() -> None:
    assert FRESH_S <= 4


async def test_a_good_secret_is_asked_about_once_while_fresh() -> None:
    asked, clock = Asked("a"), Clock()
    cached = CachedKeys(asked, clock)
    for _ in range(100):
        assert (await cached.authenticate("a")).key_id == "key_a"
    assert asked.questions == 1
    clock.now += FRESH_S
    await cached.authenticate("a")
    assert asked.questions == 2


async def test_a_revocation_elsewhere_is_seen_when_the_answer_is_no_longer_fresh() -> None:
    asked, clock = Asked("a"), Clock()
    cached = CachedKeys(asked, clock)
    await cached.authenticate("a")
    asked.known.clear()
    clock.now += FRESH_S - 0.01
    await cached.authenticate("a")
    clock.now += 0.01
    with pytest.raises(InvalidApiKey):
        await cached.authenticate("a")


async def test_freshness_counts_from_the_question() -> None:
    asked, clock = Asked("a"), Clock()
    cached = CachedKeys(asked, clock)
    asked.answer_now.clear()
    waiting = asyncio.create_task(cached.authenticate("a"))
    await asyncio.sleep(0)
    clock.now += FRESH_S
    asked.answer_now.set()
    await waiting
    await cached.authenticate("a")
    assert asked.questions == 2


async def test_a_revocation_here_drops_that_key_only_whatever_else_is_known_of_it() -> None:
    asked = Asked("a", "b")
    cached = CachedKeys(asked, Clock())
    await cached.authenticate("a")
    await cached.authenticate("b")
    await cached.revoke_key(a.Ref("tenant", "key_a", "somebody"))
    with pytest.raises(InvalidApiKey):
        await cached.authenticate("a")
    await cached.authenticate("b")
    assert asked.questions == 3


async def test_a_revocation_here_beats_an_answer_under_way() -> None:
    asked = Asked("a")
    cached = CachedKeys(asked, Clock())
    asked.answer_now.clear()
    waiting = asyncio.create_task(cached.authenticate("a"))
    await asyncio.sleep(0)
    await cached.revoke_key(a.Ref("tenant", "key_a"))
    asked.answer_now.set()
    await waiting
    with pytest.raises(InvalidApiKey):
        await cached.authenticate("a")


async def test_a_closed_session_is_refused_at_once() -> None:
    asked = Asked("a", "b")
    cached = CachedSessions(asked, Clock())
    await cached.resolve("a")
    await cached.resolve("b")
    await cached.close("a")
    with pytest.raises(InvalidApiKey):
        await cached.resolve("a")
    await cached.resolve("b")
    assert asked.questions == 3


async def test_signing_out_everywhere_drops_every_session_of_the_user() -> None:
    asked = Asked("a1", "a2", "b1")
    cached = CachedSessions(asked, Clock())
    for token in asked.known:
        await cached.resolve(token)
    await cached.close_all(a.Ref("tenant", "user_a"))
    for token in ("a1", "a2"):
        with pytest.raises(InvalidApiKey):
            await cached.resolve(token)
    asked.questions = 0
    await cached.resolve("b1")
    assert asked.questions == 0


async def test_known_secrets_outlive_an_outage_for_a_minute() -> None:
    asked, clock = Asked("a", "b"), Clock()
    cached = CachedKeys(asked, clock)
    await cached.authenticate("a")
    asked.down = True
    clock.now += STALE_S - 1
    await cached.authenticate("a")
    with pytest.raises(Overloaded):
        await cached.authenticate("b")
    clock.now += 1
    with pytest.raises(Overloaded):
        await cached.authenticate("a")


async def test_a_revoked_key_does_not_come_back_in_an_outage() -> None:
    asked, clock = Asked("a"), Clock()
    cached = CachedKeys(asked, clock)
    await cached.authenticate("a")
    clock.now += FRESH_S
    asked.known.clear()
    with pytest.raises(InvalidApiKey):
        await cached.authenticate("a")
    asked.down = True
    with pytest.raises(Overloaded):
        await cached.authenticate("a")


async def test_memory_is_bounded_and_holds_no_secret() -> None:
    names = [f"secret-{number}" for number in range(50)]
    asked = Asked(*names)
    cached = CachedKeys(asked, Clock(), capacity=10)
    for name in names:
        await cached.authenticate(name)
    for number in range(1000):
        with pytest.raises(InvalidApiKey):
            await cached.authenticate(f"wrong-{number}")
    known = cached._recognised._known
    assert len(known) == 10
    assert not any(name.encode() in digest for name in names for digest in known)
    asked.questions = 0
    for name in names[-10:]:
        await cached.authenticate(name)
    assert asked.questions == 0


@pytest.mark.parametrize("secret", ["x" * 1_000_000, "é", "\ud800"])
async def test_a_malformed_secret_is_refused_without_a_question(secret: str) -> None:
    asked = Asked()
    with pytest.raises(InvalidApiKey) as failure:
        await CachedKeys(asked).authenticate(secret)
    assert type(failure.value) is InvalidApiKey
    with pytest.raises(NotSignedIn):
        await CachedSessions(asked).resolve(secret)
    await CachedSessions(Asked("\ud800")).close("\ud800")
    assert asked.questions == 0
