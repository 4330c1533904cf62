"""A gateway without sockets: the ASGI app itself, driven by a script."""

from pathlib import Path

import pytest

from tests.unit.services.chat.parts import migrated


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return migrated(tmp_path_factory.mktemp("gateway") / "template.db")
