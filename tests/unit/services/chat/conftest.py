"""What the tests of the chat service share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.common.messages import NewConversation
from tests.unit.services.chat.parts import TENANT, Chat, ScriptedEngine, migrated, opened


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return migrated(tmp_path_factory.mktemp("chat") / "template.db")


@pytest.fixture
async def chat(template: Path, tmp_path: Path) -> AsyncIterator[Chat]:
    async with opened(template, tmp_path, ScriptedEngine()) as parts:
        yield Chat(parts, await parts.conversations.create(NewConversation(tenant=TENANT)))
