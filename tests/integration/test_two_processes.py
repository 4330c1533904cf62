"""Two gateways on one PostgreSQL and one Redis: what one is told, the other keeps to within five seconds."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from services.accounts.cache import FRESH_S
from services.accounts.throttle import FREE
from tests.support.organisations import PASSWORD, Installation, Organisation, installation, taken
from tests.support.postgres import OwnPostgres, own_postgres
from tests.support.redis import OwnRedis, own_redis
from tests.support.server import SIMULATED, Server, until

pytestmark = pytest.mark.postgres
SOON_S = 5.0
BACK_S = 2.0
PER_MINUTE = 6
TIERS = f"""
[enterprise]
[tight.limits.chat]
organisation = {{ requests_per_minute = {PER_MINUTE} }}
[streams.limits.chat]
organisation = {{ concurrent_streams = 2 }}
"""
CHAT = {"model": SIMULATED, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


class Pair:
    """`here` and `there`: the same people, on one server and on the other."""

    def __init__(self, here: Installation, there: Server, postgres: OwnPostgres, redis: OwnRedis):
        self.here = here
        self.there = there
        self.postgres = postgres
        self.redis = redis

    def key_there(self, secret: str) -> httpx.Client:
        return self.here.program(secret, self.there.url)

    def session_there(self, browser: httpx.Client) -> httpx.Client:
        """The same browser, sent to the other server by whatever spreads the load."""
        made = self.here.browser(self.there.url)
        made.cookies.set("antiphon_session", browser.cookies["antiphon_session"])
        return made

    def signed_in_there(self, **credentials: str) -> httpx.Client:
        made = self.here.browser(self.there.url)
        taken(made.post("/api/session", json=credentials))
        return made


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    folder.joinpath("tiers.toml").write_text(TIERS)
    with own_postgres() as postgres, own_redis() as redis:
        shared = {
            "DATABASE_URL": postgres.url.replace("postgresql://", "postgresql+asyncpg://"), "REDIS_URL": redis.url,
            "REPLICAS": "2", "TIERS": str(folder / "tiers.toml"), "EMBEDDING_MODEL": "none",
        }  # fmt: skip
        with Server(folder / "here", model=SIMULATED, **shared) as here:
            (folder / "there").mkdir()
            shutil.copy(folder / "here" / "pepper", folder / "there" / "pepper")
            with Server(folder / "there", model=SIMULATED, **shared) as there, installation(here) as place:
                yield Pair(place, there, postgres, redis)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with pair(tmp_path_factory.mktemp("two")) as made:
        yield made


@pytest.fixture(scope="module")
def acme(two: Pair) -> Organisation:
    return two.here.organisation("Acme")


def status(http: httpx.Client, path: str = "/api/organization") -> int:
    return http.get(path).status_code


def assert_ends(deed: Callable[[], Any], *doors: httpx.Client) -> None:
    """All are let in, also from memory, until the deed; and none of them five seconds later."""
    for _ in range(2):
        assert [status(http) for http in doors] == [200] * len(doors)
    began = monotonic()
    deed()
    left = SOON_S - (monotonic() - began)
    until(lambda: all(status(http) == 401 for http in doors), left, "the end of keys and sessions")
    assert [status(http) for http in doors] == [401] * len(doors), "it comes back"


def test_a_key_made_here_works_there_and_is_refused_everywhere_once_revoked(two: Pair, acme: Organisation) -> None:
    made = acme.owner.new_key(name="made here")
    key = made["secret"]
    here, there = two.here.program(key), two.key_there(key)
    assert taken(there.post("/v1/chat/completions", json=CHAT))["choices"]
    assert_ends(
        lambda: taken(acme.owner.browser.delete(f"/api/organization/api_keys/{made['id']}")),
        here, there, two.signed_in_there(key=key),
    )  # fmt: skip
    assert there.post("/v1/chat/completions", json=CHAT).json()["error"]["code"] == "invalid_api_key"
    assert two.here.browser(two.there.url).post("/api/session", json={"key": key}).status_code == 401


def test_a_key_revoked_there_by_a_program_is_refused_here(two: Pair, acme: Organisation) -> None:
    made = acme.owner.new_key(name="revoked there")
    program = two.key_there(acme.owner.key["secret"])
    assert_ends(
        lambda: taken(program.delete(f"/v1/organization/api_keys/{made['id']}")), two.here.program(made["secret"])
    )


def test_a_removed_member_is_out_everywhere(two: Pair, acme: Organisation) -> None:
    person = acme.join()
    doors = (
        person.program, two.key_there(person.key["secret"]), two.session_there(person.browser),
        two.signed_in_there(email=person.email, password=PASSWORD), two.signed_in_there(key=person.key["secret"]),
    )  # fmt: skip
    assert_ends(lambda: taken(acme.owner.browser.delete(f"/api/organization/users/{person.id}")), *doors)
    credentials = {"email": person.email, "password": PASSWORD}
    assert two.here.browser(two.there.url).post("/api/session", json=credentials).status_code == 401


def test_a_suspended_organisation_is_out_everywhere_and_comes_back(two: Pair) -> None:
    guests = two.here.organisation("Guests")
    doors = [
        door
        for person in guests.people
        for door in (two.key_there(person.key["secret"]), two.session_there(person.browser))
    ]

    def suspended(now: bool) -> None:
        taken(two.here.operator.patch(f"/api/organizations/{guests.id}", json={"suspended": now}))

    assert_ends(lambda: suspended(True), *doors)
    suspended(False)
    until(lambda: all(status(door) == 200 for door in doors), SOON_S, "the organisation's return")


def test_signing_out_everywhere_does_so(two: Pair, acme: Organisation) -> None:
    person = acme.join()
    doors = two.session_there(person.browser), two.signed_in_there(email=person.email, password=PASSWORD)
    assert_ends(lambda: taken(person.browser.delete("/api/session/all")), *doors)
    assert status(two.key_there(person.key["secret"])) == 200, "a key is no session"


def test_a_new_password_ends_the_sessions_elsewhere(two: Pair, acme: Organisation) -> None:
    person = acme.join()
    change = {"current": PASSWORD, "new": "another long one"}
    doors = two.session_there(person.browser), two.signed_in_there(email=person.email, password=PASSWORD)
    assert_ends(lambda: taken(person.browser.post("/api/account/password", json=change)), *doors)
    assert status(person.browser) == 200, "the session that changed it goes on, renewed"


def test_who_was_made_less_can_do_less_everywhere(two: Pair, acme: Organisation) -> None:
    person = acme.join("admin")
    doors = two.key_there(person.key["secret"]), two.session_there(person.browser)
    users = "/api/organization/users"
    assert [status(http, users) for http in doors] == [200, 200]
    taken(acme.owner.browser.patch(f"{users}/{person.id}", json={"role": "member"}))
    until(lambda: all(status(http, users) == 403 for http in doors), SOON_S, "the end of the admin's rights")


def test_requests_are_counted_across_both(two: Pair) -> None:
    owner = two.here.organisation("Tight", "tight").owner
    doors = [owner.program, two.key_there(owner.key["secret"])] * 12
    began = monotonic()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda http: http.post("/v1/chat/completions", json=CHAT), doors))
    refilled = (monotonic() - began) * PER_MINUTE / 60
    admitted = [answer for answer in answers if answer.status_code == 200]
    assert PER_MINUTE <= len(admitted) <= PER_MINUTE + refilled
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} == {429}
    assert {str(answer.request.url.port) for answer in refused} == {str(two.there.port), str(two.here.server.port)}


def test_open_streams_are_counted_across_both(two: Pair) -> None:
    owner = two.here.organisation("Streams", "streams").owner
    there = two.key_there(owner.key["secret"])
    long = CHAT | {"max_tokens": 64, "stream": True}
    with owner.program.stream("POST", "/v1/chat/completions", json=long) as first:
        assert first.status_code == 200
        with there.stream("POST", "/v1/chat/completions", json=long) as second:
            assert second.status_code == 200
            assert there.post("/v1/chat/completions", json=CHAT).status_code == 429
    until(lambda: there.post("/v1/chat/completions", json=CHAT).status_code == 200, 10, "a free place", pause=0.1)


def test_an_idempotency_key_runs_once_on_both(two: Pair, acme: Organisation) -> None:
    headers = {"idempotency-key": "order-4711"}
    doors = [acme.owner.program, two.key_there(acme.owner.key["secret"])] * 10
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda http: http.post("/v1/chat/completions", json=CHAT, headers=headers), doors))
    assert {answer.status_code for answer in answers} <= {200, 409}
    again = [http.post("/v1/chat/completions", json=CHAT, headers=headers) for http in doors[:2]]
    assert [answer.status_code for answer in again] == [200, 200]
    ids = {answer.json()["id"] for answer in (*answers, *again) if answer.status_code == 200}
    assert len(ids) == 1


def test_guesses_are_counted_across_both(two: Pair, acme: Organisation) -> None:
    guess = {"email": acme.member.email, "password": "guess after guess"}
    urls = [two.here.server.url, two.there.url] * 8
    seen = [httpx.post(f"{url}/api/session", json=guess).status_code for url in urls]
    assert 429 in seen[::2], seen
    assert 429 in seen[1::2], seen
    assert 1 <= seen.count(401) < 2 * FREE, "each counts alone"


def test_what_one_writes_into_the_audit_log_the_other_shows_and_the_chain_is_whole(
    two: Pair, acme: Organisation
) -> None:
    doors = [acme.owner.program, two.key_there(acme.owner.key["secret"])] * 10
    with ThreadPoolExecutor(8) as pool:
        made = list(
            pool.map(lambda http: taken(http.post("/v1/organization/projects", json={"name": "P"}))["id"], doors)
        )
    for http in doors[:2]:
        entries = http.get("/v1/organization/audit_logs?action=project.create&limit=200").json()["data"]
        assert set(made) <= {entry["target"] for entry in entries}
        seqs = [entry["seq"] for entry in entries]
        assert seqs == sorted(set(seqs), reverse=True)


def test_usage_of_both_is_in_one_ledger(two: Pair) -> None:
    owner = two.here.organisation("Ledger").owner
    doors = owner.program, two.key_there(owner.key["secret"])
    used = sum(taken(h.post("/v1/chat/completions", json=CHAT))["usage"]["completion_tokens"] for h in doors * 5)

    def counted(http: httpx.Client) -> list[tuple[int, int]]:
        return [(t["requests"], t["output_tokens"]) for t in http.get("/v1/usage?bucket=all").json()["data"]]

    for http in doors:
        until(lambda http=http: counted(http) == [(10, used)], 15, "the usage of both", pause=0.1)  # type: ignore[misc]


def test_without_postgresql_known_keys_serve_and_writes_wait_for_it(tmp_path: Path) -> None:
    with pair(tmp_path) as two:
        acme = two.here.organisation("Acme")
        doors = acme.owner.program, two.key_there(acme.owner.key["secret"])
        stranger, browser = acme.admin.program, acme.owner.browser
        assert [status(http, "/v1/models") for http in doors] == [200, 200]
        two.postgres.stop()
        sleep(FRESH_S)  # from now on it would be asked, and cannot
        for http in doors:
            assert status(http, "/v1/models") == 200
            assert http.post("/v1/chat/completions", json=CHAT).status_code == 200
            refused = http.post("/v1/organization/projects", json={"name": "lost"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
            assert int(refused.headers["retry-after"]) >= 1
        assert browser.post("/api/conversations", json={}).status_code == 503
        unknown = two.here.program("sk-" + "A" * 43)
        assert status(unknown, "/v1/models") == 503, "nobody knows whether it is good"
        assert httpx.get(f"{two.there.url}/health/live").status_code == 200
        two.postgres.start()
        for http in (*doors, stranger):
            until(lambda http=http: status(http, "/v1/organization") == 200, BACK_S, "the database's return")  # type: ignore[misc]
            assert http.post("/v1/organization/projects", json={"name": "kept"}).status_code == 201
        names = [project["name"] for project in doors[0].get("/v1/organization/projects").json()["data"]]
        assert names == ["kept"] * 3
