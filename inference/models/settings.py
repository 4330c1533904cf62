from pathlib import Path
from typing import Annotated, Any, Literal

from platformdirs import user_cache_path
from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from services.common.settings import Settings

SourceName = Literal["path", "hub", "packages"]


class ModelSettings(Settings):
    models: Path = Field(default_factory=lambda: user_cache_path("antiphon") / "models")
    """The cache of weights, shared by every project and virtualenv of this user: <models>/<name>/<file>."""

    model_sources: Annotated[tuple[SourceName, ...], NoDecode] = ("path", "hub", "packages")
    """Where weights may come from, in order, separated by commas. `path` allows a local file in place of a name."""

    @field_validator("models")
    @classmethod
    def _home(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("model_sources", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value
