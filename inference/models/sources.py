"""Where weights come from. `ensure` asks the sources in order and trusts none of them: it hashes what they deliver."""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from inference.models.hub import HubSource
from inference.models.messages import File
from inference.models.packages import PackageSource
from inference.models.progress import Progress
from inference.models.settings import SourceName


class Source(Protocol):
    def offer(self, file: File) -> str:
        """What a person would call the place that has this file; empty when this source has not."""
        ...

    def fetch(self, file: File, folder: Path, progress: Progress) -> Path:
        """Completes `folder`/`file.name` and returns it, unverified. What is there already is a beginning to continue,
        whichever source left it.

        Raises SourceError, OSError.
        """
        ...

    def scratch(self, file: File) -> int:
        """Bytes needed in `folder` besides the file itself."""
        ...


def sources(names: Iterable[SourceName]) -> tuple[Source, ...]:
    known: dict[SourceName, Source] = {"hub": HubSource(), "packages": PackageSource()}
    return tuple(known[name] for name in names if name in known)
