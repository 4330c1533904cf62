"""Settings of the embedded default."""

from pathlib import Path
from typing import Literal

from platformdirs import user_data_path
from pydantic import Field, SecretStr

from services.common.settings import Settings


class ServeSettings(Settings):
    home: Path = Field(
        default_factory=lambda: user_data_path("antiphon"),
        description="The data folder: database, key, logs. A fresh folder is a fresh installation.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535)
    model: str = Field("", description="Names or paths of models, separated by commas. The first is the default.")
    embedding_model: str = Field("all-minilm-l6-v2", description="Model behind /v1/embeddings.")
    upstream_url: str | None = Field(
        None, description="Serve the models of this OpenAI-compatible server (…/v1) instead."
    )
    upstream_api_key: SecretStr | None = None
    database_url: str | None = Field(
        None, description="PostgreSQL (postgresql+asyncpg://…) instead of SQLite in `home`."
    )
    redis_url: str | None = Field(
        None, description="Redis for limits and idempotency keys that several gateways share; None: kept here."
    )
    replicas: int = Field(
        1, ge=1, description="How many gateways share the limits: each takes its share without Redis."
    )
    trusted_proxies: str = Field(
        "", description="Addresses and networks whose X-Forwarded-For and -Proto are believed, separated by commas."
    )
    no_auth: bool = Field(False, description="Ask for no key. Refused unless `host` is a loopback address.")
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    otlp_endpoint: str | None = Field(None, description="OTLP/HTTP endpoint for traces; none are made without it.")

    @property
    def database(self) -> str:
        return self.database_url or f"sqlite+aiosqlite:///{self.home / 'antiphon.db'}"
