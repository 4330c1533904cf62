from importlib.resources import files
from pathlib import Path

import msgspec

from inference.models.errors import UnknownModel
from inference.models.messages import Catalog, File, Model
from inference.models.settings import ModelSettings


def load_catalog() -> Catalog:
    return msgspec.toml.decode(files("inference.models").joinpath("catalog.toml").read_bytes(), type=Catalog)


def resolve(name_or_path: str, *, catalog: Catalog | None = None, settings: ModelSettings | None = None) -> Model:
    """The model of that name, or an ad-hoc one for a local file. Raises UnknownModel."""
    catalog = catalog or load_catalog()
    if model := catalog.get(name_or_path):
        return model
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise UnknownModel(
            f"Unknown model {name_or_path!r}: neither a file nor one of {', '.join(catalog.names())}.", param="model"
        )
    if "path" not in (settings or ModelSettings()).model_sources:
        raise UnknownModel(f"{name_or_path!r} is a local file, and ANTIPHON_MODEL_SOURCES leaves out `path`.")
    return _local(path.absolute())


def _local(path: Path) -> Model:
    return Model(
        name=path.stem,
        kind="embedding" if path.suffix == ".onnx" else "chat",
        description="A local file.",
        licence="unknown",
        files=(File(name=path.name, bytes=path.stat().st_size),),
        local=str(path),
    )
