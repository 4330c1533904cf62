"""Where conversations are kept."""

from services.common.settings import Settings


class ConversationSettings(Settings):
    database_url: str = "sqlite+aiosqlite:///.antiphon/antiphon.db"
    """`sqlite+aiosqlite:///path` or `postgresql+asyncpg://…`."""
