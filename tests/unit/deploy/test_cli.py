"""The command line tells a mistake in one line."""

import pytest

from deploy.cli import main


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["antiphon", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


@pytest.mark.parametrize("value", ["x", "-1", "65536"])
def test_a_setting_that_cannot_be_is_named(
    value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIPHON_PORT", value)
    assert run(monkeypatch, "serve") == 2
    told = capsys.readouterr().err
    assert "ANTIPHON_PORT" in told
    assert len(told.splitlines()) == 1


def test_keyless_service_beyond_loopback_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "serve", "--no-auth", "--host", "0.0.0.0") == 1
    assert "loopback" in capsys.readouterr().err
