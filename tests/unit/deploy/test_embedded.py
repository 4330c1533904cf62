"""The embedded root: what a data folder comes to hold, what a start says, and what its end leaves."""

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from deploy.cli import app
from deploy.embedded import platform
from deploy.engines import running_engines
from deploy.installation import Installation, first_key
from deploy.server import _is_loopback, announce, serve
from deploy.settings import ServeSettings
from gateway.auth import LOCAL
from inference.models import UnknownModel
from services.chat.conversation import StartTurn
from services.common.account_messages import Ref
from services.common.errors import Conflict, Forbidden, InvalidApiKey, InvalidRequest, Overloaded
from services.common.messages import EmbeddingRequest, MessageRef, NewConversation

runner = CliRunner()


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "HOST", "PORT", "MODEL", "NO_AUTH", "DATABASE_URL", "UPSTREAM_URL", "EMBEDDING_MODEL"):
        monkeypatch.delenv(f"ANTIPHON_{name}", raising=False)


@pytest.fixture
def settings(tmp_path: Path) -> ServeSettings:
    return ServeSettings(home=tmp_path / "home", model="simulated", embedding_model="none")


def quiet() -> Console:
    return Console(file=io.StringIO())


def test_defaults_are_safe_and_the_environment_may_change_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fresh = ServeSettings()
    assert (fresh.host, fresh.port, fresh.no_auth, fresh.upstream_url) == ("127.0.0.1", 8000, False, None)
    monkeypatch.setenv("ANTIPHON_HOME", str(tmp_path))
    monkeypatch.setenv("ANTIPHON_PORT", "0")
    assert ServeSettings().port == 0
    assert ServeSettings().database == f"sqlite+aiosqlite:///{tmp_path / 'antiphon.db'}"
    monkeypatch.setenv("ANTIPHON_DATABASE_URL", "postgresql+asyncpg://db/x")
    assert ServeSettings().database == "postgresql+asyncpg://db/x"
    assert "secret" not in repr(ServeSettings(upstream_api_key="secret"))  # type: ignore[arg-type]


async def test_a_fresh_folder_gets_one_key_that_later_starts_do_not_show_again(settings: ServeSettings) -> None:
    first = Installation(settings)
    accounts = await first.open()
    made = await first_key(accounts)
    assert made.secret is not None
    assert made.secret.startswith("sk-")
    who = await accounts.keys.authenticate(made.secret)
    assert (who.tenant, who.tier) == (LOCAL.tenant, LOCAL.tier)
    await first.close()
    second = Installation(settings)
    accounts = await second.open()
    again = await first_key(accounts)
    assert (again.id, again.secret, again.hint) == (made.id, None, made.secret[-4:])
    assert (await accounts.keys.authenticate(made.secret)).key_id == made.id
    await accounts.keys.revoke_key(Ref(LOCAL.tenant, made.id))
    assert (await first_key(accounts)).id != made.id
    await second.close()
    assert made.secret.encode() not in b"".join(p.read_bytes() for p in settings.home.iterdir() if p.is_file())


def test_the_pepper_is_made_whole_and_once_however_many_start_together(settings: ServeSettings) -> None:
    settings.home.mkdir()
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: Installation(settings).pepper(), range(16)))
    assert len(found) == 1
    assert len(found.pop()) == 32
    assert [p.name for p in settings.home.iterdir()] == ["pepper"]
    assert (settings.home / "pepper").stat().st_mode & 0o777 == 0o600


async def test_the_folder_is_its_owners_alone(settings: ServeSettings) -> None:
    installation = Installation(settings)
    await installation.open()
    await installation.close()
    assert settings.home.stat().st_mode & 0o777 == 0o700


async def test_every_part_starts_works_together_and_saves_what_ran_when_it_ends(settings: ServeSettings) -> None:
    async with platform(settings, quiet()) as (ports, key):
        assert await ports.health.ready()
        assert ports.default_model == "simulated"
        assert [c.id for c in await ports.router.models()] == ["simulated"]
        assert (await ports.auth.by_key(f"Bearer {key.secret}".encode())).tenant == LOCAL.tenant
        with pytest.raises(InvalidApiKey):
            await ports.auth.by_key(b"Bearer sk-no")
        with pytest.raises(Overloaded, match="no embedding model"):
            await ports.embeddings.run(LOCAL, "req_1", EmbeddingRequest(model="none", inputs=("x",)))
        made = await ports.conversations.create(NewConversation(tenant=LOCAL.space))
        ask = StartTurn(principal=LOCAL, conversation_id=made.id, content="Hi", parameters={"max_tokens": 60})
        answer = (await ports.conversation_turns.start(ask)).answer
        await asyncio.sleep(0.2)
        ports.health.draining = True
        assert not await ports.health.ready()
    async with platform(settings, quiet()) as (ports, _):
        saved = await ports.messages.get(MessageRef(LOCAL.tenant, answer.id))
        assert saved.status in ("interrupted", "complete")
        assert saved.content
    assert list((settings.home / "turns").iterdir()) == []


async def test_a_data_folder_has_one_server(settings: ServeSettings) -> None:
    async with platform(settings, quiet()):
        with pytest.raises(Conflict, match="Another server uses the data folder"):
            async with platform(settings, quiet()):
                pass
    async with platform(settings, quiet()) as (ports, _):
        assert await ports.health.ready()


async def test_a_tiers_file_with_a_mistake_ends_the_start_with_its_place(
    settings: ServeSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tiers.toml").write_text("[free]\nweight = -1\n")
    monkeypatch.setenv("ANTIPHON_TIERS", str(tmp_path / "tiers.toml"))
    with pytest.raises(InvalidRequest, match=r"free\.weight"):
        async with platform(settings, quiet()):
            pass


async def test_a_model_that_nobody_knows_ends_the_start_with_its_name(settings: ServeSettings) -> None:
    wrong = settings.model_copy(update={"model": "no-such-model"})
    with pytest.raises(UnknownModel, match="no-such-model"):
        async with running_engines(wrong, quiet()):
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_these_hosts_are_loopback(host: str) -> None:
    assert _is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.1", "example.com", "", "localhost.example.com", "::ffff:8.8.8.8"]
)
async def test_without_keys_we_listen_on_loopback_alone(settings: ServeSettings, host: str) -> None:
    with pytest.raises(Forbidden, match="loopback"):
        await serve(settings.model_copy(update={"no_auth": True, "host": host}))
    assert not settings.home.exists()


def test_the_command_says_so_without_a_traceback() -> None:
    done = runner.invoke(app, ["serve", "--no-auth", "--host", "0.0.0.0"])
    assert done.exit_code == 1
    assert "loopback" in done.output
    assert "Traceback" not in done.output


async def test_the_last_lines_of_a_start_say_where_with_what_key_and_how_to_try_it(
    settings: ServeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    async with platform(settings, quiet()) as (ports, key):
        announce("0.0.0.0", 8001, ports, key)
        url, shown, curl = capsys.readouterr().out.splitlines()
        assert url.startswith("URL:     http://127.0.0.1:8001/ ")
        assert ports.signin_token in url
        assert shown == f"API key: {key.secret}"
        assert f"Bearer {key.secret}" in curl
        assert '"model": "simulated"' in curl
        announce("::1", 8001, ports, replace(key, secret=None))
        url, shown, curl = capsys.readouterr().out.splitlines()
        assert "http://[::1]:8001/" in url
        assert str(key.secret) not in shown + curl
        assert key.hint in shown
        ports.auth.open_to_all = True
        announce("127.0.0.1", 80, ports, key)
        assert "none needed" in capsys.readouterr().out


def test_keys_are_made_listed_and_revoked_from_the_command_line(tmp_path: Path) -> None:
    home = ["--home", str(tmp_path / "home")]
    made = runner.invoke(app, ["keys", "create", "laptop", *home])
    secret = made.stdout.strip()
    assert secret.startswith("sk-")
    listed = runner.invoke(app, ["keys", "list", *home], env={"COLUMNS": "200"}).stdout
    assert "laptop" in listed
    assert secret[-4:] in listed
    assert secret not in listed
    key_id = next(word for word in listed.split() if word.startswith("key_"))
    assert runner.invoke(app, ["keys", "revoke", key_id, *home]).exit_code == 0
    assert "revoked" in runner.invoke(app, ["keys", "list", *home], env={"COLUMNS": "200"}).stdout
    missing = runner.invoke(app, ["keys", "revoke", "key_none", *home])
    assert (missing.exit_code, missing.exception.__class__) == (1, SystemExit)
