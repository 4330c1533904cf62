"""Settings come from the environment (`ANTIPHON_…`) or from a `.env` file in the working folder."""

from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Base of every component's settings. A component adds its fields, each documented and with a safe default."""

    model_config = SettingsConfigDict(
        env_prefix="ANTIPHON_", env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )
