"""What the catalog says of a model, as frozen values. Sizes are in bytes, lengths in tokens."""

from typing import Literal

from msgspec import Struct

Kind = Literal["chat", "embedding"]


class Hub(Struct, frozen=True, forbid_unknown_fields=True):
    repo: str
    file: str
    revision: str = "main"


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """One member of one wheel; a file is its parts, appended in order."""

    requirement: str
    member: str
    bytes: int


class File(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    bytes: int
    sha256: str = ""
    """Hexadecimal; empty only for a local file, which there is nothing to compare with."""
    hub: Hub | None = None
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        if "/" in self.name or self.name.startswith("."):
            raise ValueError(f"{self.name!r} is not a plain file name")
        if self.parts and sum(part.bytes for part in self.parts) != self.bytes:
            raise ValueError(f"the parts of {self.name} do not add up to {self.bytes} bytes")


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    kind: Kind
    description: str
    licence: str
    files: tuple[File, ...]
    context_length: int | None = None
    """Tokens; None when only the file itself knows."""
    parameters: str = ""
    quantisation: str = ""
    dimensions: int | None = None
    chat_template: str = ""
    """Notes for whoever writes prompts; the template itself lies in the file."""
    local: str = ""
    """The path of a file outside the cache; empty for a model of the catalog."""

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class Catalog(Struct, frozen=True, forbid_unknown_fields=True):
    default: str
    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        names = self.names()
        if self.default not in names or len(set(names)) != len(names):
            raise ValueError("the default must be a model of the catalog, and names must be unique")

    def names(self) -> list[str]:
        return [model.name for model in self.models]

    def get(self, name: str) -> Model | None:
        return next((model for model in self.models if model.name == name), None)
