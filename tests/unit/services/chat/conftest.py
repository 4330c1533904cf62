"""What the tests of the chat service share."""

from pathlib import Path

import pytest

from tests.unit.services.chat.parts import migrated


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return migrated(tmp_path_factory.mktemp("chat") / "template.db")
