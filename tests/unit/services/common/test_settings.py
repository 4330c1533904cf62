"""Settings: from the environment, else from .env in the working folder, else the default."""

from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from services.common.settings import Settings


class Some(Settings):
    sample_port: int = Field(1, ge=1)
    sample_name: str = "default"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("ANTIPHON_SAMPLE_PORT", "ANTIPHON_SAMPLE_NAME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_anything_the_defaults_hold() -> None:
    assert Some() == Some(sample_port=1, sample_name="default")


def test_the_environment_wins_over_the_file_and_an_argument_over_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".env").write_text("ANTIPHON_SAMPLE_PORT=2\nANTIPHON_SAMPLE_NAME='from file'\nANTIPHON_OTHER=x\nELSE=y\n")
    assert (Some().sample_port, Some().sample_name) == (2, "from file")
    monkeypatch.setenv("ANTIPHON_SAMPLE_PORT", "3")
    assert (Some().sample_port, Some().sample_name) == (3, "from file")
    assert Some(sample_port=4).sample_port == 4


def test_only_names_with_our_prefix_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLE_PORT", "5")
    assert Some().sample_port == 1


def test_an_empty_variable_is_an_unset_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_SAMPLE_PORT", "")
    monkeypatch.setenv("ANTIPHON_SAMPLE_NAME", "")
    assert Some() == Some(sample_port=1, sample_name="default")


@pytest.mark.parametrize("value", ["0", "x"])
def test_a_value_that_cannot_be_is_refused_by_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTIPHON_SAMPLE_PORT", value)
    with pytest.raises(ValidationError) as refusal:
        Some()
    assert refusal.value.errors()[0]["loc"] == ("sample_port",)


def test_settings_do_not_change_while_we_run() -> None:
    with pytest.raises(ValidationError):
        Some().sample_port = 2
