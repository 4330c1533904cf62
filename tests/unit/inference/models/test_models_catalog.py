import re
from pathlib import Path

import msgspec
import pytest

from inference.models import Catalog, File, ModelSettings, UnknownModel, ensure, load_catalog, resolve
from inference.models.messages import Part


def test_the_shipped_catalog_is_whole() -> None:
    catalog = load_catalog()
    assert catalog.default == "qwen2.5-coder-0.5b-instruct"
    assert len(catalog.models) == 4
    for model in catalog.models:
        assert re.fullmatch("[a-z0-9][a-z0-9.-]*", model.name)
        assert model.licence == "Apache-2.0"
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.parts for file in model.files)
        assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", part.requirement) for f in model.files for part in f.parts)


def test_a_catalog_with_a_slip_is_refused() -> None:
    for slip in ('default = "none"\nmodels = []', 'default = "a"\nmodels = []\nmodel = []'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.toml.decode(slip, type=Catalog)
    with pytest.raises(ValueError, match="plain file name"):
        File(name="../evil", bytes=1)
    with pytest.raises(ValueError, match="add up"):
        File(name="a", bytes=2, parts=(Part("p==1", "m", 1),))


def test_a_name_wins_and_an_unknown_one_lists_the_known() -> None:
    assert resolve("smollm2-135m-instruct").name == "smollm2-135m-instruct"
    with pytest.raises(UnknownModel, match=r"qwen2\.5-coder-0\.5b-instruct.*all-minilm-l6-v2") as caught:
        resolve("nope")
    assert (caught.value.status, caught.value.wire_code) == (404, "model_not_found")


def test_a_local_file_is_a_model_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "my-model.gguf"
    path.write_bytes(b"GGUF")
    model = resolve(str(path))
    assert (model.name, model.kind, model.bytes) == ("my-model", "chat", 4)
    assert ensure(model, settings=ModelSettings(models=tmp_path / "cache")) == {"my-model.gguf": path}
    assert not (tmp_path / "cache").exists()
    with pytest.raises(UnknownModel, match="ANTIPHON_MODEL_SOURCES"):
        resolve(str(path), settings=ModelSettings(model_sources=("hub",)))


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANTIPHON_MODELS", str(tmp_path))
    monkeypatch.setenv("ANTIPHON_MODEL_SOURCES", "packages, path")
    settings = ModelSettings()
    assert (settings.models, settings.model_sources) == (tmp_path, ("packages", "path"))
    monkeypatch.setenv("ANTIPHON_MODEL_SOURCES", "ftp")
    with pytest.raises(ValueError):
        ModelSettings()
