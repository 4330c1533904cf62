"""Where keys and sessions are kept."""

from pathlib import Path

from services.common.settings import Settings


class AccountSettings(Settings):
    database_url: str = "sqlite+aiosqlite:///.antiphon/antiphon.db"
    """`sqlite+aiosqlite:///path` or `postgresql+asyncpg://…`."""
    pepper_file: Path = Path(".antiphon/pepper")
    """32 random bytes, mode 0600. Whoever loses it must make every key anew; replicas share one."""
