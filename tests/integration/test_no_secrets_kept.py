"""After a whole life of the product, neither its database nor its logs hold a secret, and no log what was said."""

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.life import Life
from tests.support.canaries import CONTENT, files, forms, places_of, postgres_tables, redis_keys, sqlite_tables
from tests.support.oidc_provider import OidcProvider, Person
from tests.support.postgres import postgres_database, postgres_server
from tests.support.redis import own_redis
from tests.support.server import MODEL, SIMULATED, Server

__all__ = ["postgres_database", "postgres_server"]


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with OidcProvider() as made:
        made.people = [Person(password="the password at the provider")]
        yield made


def lived(home: Path, provider: OidcProvider, **settings: str) -> Life:
    settings |= provider.settings() | {"OIDC_DEFAULT_ROLE": "member", "EMBEDDING_MODEL": "none", "LOG_LEVEL": "debug"}
    with Server(home, model=SIMULATED, **settings) as server:
        life = Life(server).lived(provider)
        life.places = {f"{name} (running)": data for name, data in life.places.items()} | life.pages
        life.places |= files(home)
        if "DATABASE_URL" not in settings:
            life.places |= sqlite_tables(home)
    return life


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory, provider: OidcProvider) -> Life:
    return lived(tmp_path_factory.mktemp("life"), provider)


@pytest.fixture
def shared(tmp_path: Path, provider: OidcProvider, postgres_database: str) -> Life:
    with own_redis() as redis:
        life = lived(tmp_path, provider, DATABASE_URL=postgres_database, REDIS_URL=redis.url)
        life.places |= postgres_tables(postgres_database) | redis_keys(redis.url)
    return life


def assert_secrets_kept(life: Life) -> None:
    assert len(life.secrets) >= 35
    found = {what: places_of(secret, life.places) for what, secret in life.secrets.items()}
    assert not {what: places for what, places in found.items() if places}
    for answer in life.refusals:
        if answer.status_code in (401, 403):
            assert not [w for w, secret in life.secrets.items() if any(f in answer.content for f in forms(secret))], (
                answer.url
            )


def assert_said_to_nobody_else(life: Life) -> None:
    for what, words in life.said.items():
        places = places_of(words, life.places)
        stray = [name for name in places if not CONTENT.search(name.removesuffix(" (running)"))]
        assert not stray, (what, words, stray)


def assert_search_finds(life: Life) -> None:
    """What is there by right: so what is not found elsewhere is not there."""
    assert places_of(life.said["title"], life.places).count("table conversations") == 1
    for what in ("system prompt", "message of the dying"):
        assert {"table conversations", "table messages"} & set(places_of(life.said[what], life.places)), what
    for id in life.ids:
        for place in ("table api_keys", "table audit_log", "file stderr.log", "page /v1/organization/api_keys"):
            assert place in places_of(id, life.places), (id, place)
    lines = [json.loads(line) for line in life.places["file stderr.log"].splitlines() if line.startswith(b"{")]
    assert sum(line["event"] == "request" for line in lines) >= 80
    assert life.places["table usage_records"].count(b"\n") >= 5


def test_the_embedded_default_keeps_no_secret(embedded: Life) -> None:
    assert_search_finds(embedded)
    assert {"file antiphon.db", "file stderr.log"} <= set(embedded.places)
    assert [name for name in embedded.places if name.startswith("file turns/")], (
        "a turn was under way when it was killed"
    )
    assert_secrets_kept(embedded)


def test_the_embedded_default_logs_nothing_that_was_said(embedded: Life) -> None:
    assert_said_to_nobody_else(embedded)


@pytest.mark.postgres
def test_postgresql_and_redis_keep_no_secret_and_no_word(shared: Life) -> None:
    assert_search_finds(shared)
    assert sum(name.startswith("redis ") for name in shared.places) >= 3
    assert_secrets_kept(shared)
    assert_said_to_nobody_else(shared)


def test_every_page_that_is_public_is_among_those_that_were_searched(embedded: Life) -> None:
    assert {"page /metrics", "page /openapi.json"} <= set(embedded.places)
    assert b"antiphon_requests" in embedded.places["page /metrics"]


@pytest.mark.engine
def test_the_real_engines_log_holds_no_word(tmp_path: Path) -> None:
    word = f"canary-{secrets.token_hex(8)}"
    with Server(tmp_path, model=MODEL, EMBEDDING_MODEL="none", LOG_LEVEL="debug") as server, server.client() as http:
        for stream in (False, True):
            body = {"model": MODEL, "messages": [{"role": "user", "content": f"Say {word}."}], "max_tokens": 8}
            assert http.post("/v1/chat/completions", json=body | {"stream": stream}).status_code == 200
        long = {"model": MODEL, "prompt": f"{word} " * 20_000}
        assert http.post("/v1/completions", json=long).status_code == 400
        found = files(tmp_path)
        assert [name for name in found if name.startswith("file logs/")]
        assert places_of(word, found) == []
        assert places_of(server.key, found) == []
