"""`antiphon …` in this process, on an installation of the test's own."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner, Result

from deploy.cli import app
from deploy.installation import Installation
from deploy.settings import ServeSettings

PASSWORD = "correct horse battery"
T = TypeVar("T")


@dataclass
class CommandLine:
    home: Path

    def __call__(self, *words: str, given: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, words, input=given, catch_exceptions=False)

    def done(self, *words: str, given: str | bytes | None = None) -> str:
        """What it printed, all on standard output."""
        result = self(*words, given=given)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return str(result.stdout).rstrip("\n")

    def refused(self, *words: str, given: str | bytes | None = None) -> str:
        """The one line on standard error."""
        result = self(*words, given=given)
        assert (result.exit_code, result.stdout) == (1, ""), result.output
        [line] = result.stderr.splitlines()
        assert line.startswith("antiphon: ")
        return line.removeprefix("antiphon: ")

    def misunderstood(self, *words: str, given: str | bytes | None = None) -> str:
        """What a usage error says, with the box around it taken off."""
        result = self(*words, given=given)
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        return " ".join(result.stderr.replace("│", " ").split())

    def objects(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.done(*words, "--json"))
        return found

    def user(self, email: str, *options: str) -> str:
        return self.done("users", "create", email, "--password-stdin", *options, given=PASSWORD)

    def deeds(self, org: str = "local") -> list[tuple[str, str]]:
        """Actor and action, oldest first."""
        entries = self.objects("audit", "list", "--org", org, "--limit", "1000")
        return [(entry["actor"], entry["action"]) for entry in reversed(entries)]

    def inside(self, do: Callable[[Installation], Awaitable[T]]) -> T:
        """What another process on the same data folder would see or do."""

        async def opened() -> T:
            installation = Installation(ServeSettings(home=self.home))
            await installation.open()
            try:
                return await do(installation)
            finally:
                await installation.close()

        return asyncio.run(opened())


@pytest.fixture
def antiphon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    for name in ("ANTIPHON_DATABASE_URL", "ANTIPHON_TIERS", "ANTIPHON_PRICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    monkeypatch.setenv("ANTIPHON_HOME", str(home))
    return CommandLine(home)
