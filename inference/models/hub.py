"""The model hub, through huggingface_hub: its token, mirror and offline settings apply."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from inference.models.errors import SourceError
from inference.models.messages import File
from inference.models.progress import Progress

Result = TypeVar("Result")


class HubSource:
    def __init__(self, endpoint: str | None = None, patience_s: float = 5.0):
        self._endpoint = endpoint
        self._patience_s = patience_s

    def offer(self, file: File) -> str:
        return f"hub {file.hub.repo}" if file.hub else ""

    def scratch(self, file: File) -> int:
        return 0

    def fetch(self, file: File, folder: Path, progress: Progress) -> Path:
        from huggingface_hub import constants

        if constants.is_offline_mode():
            raise SourceError("HF_HUB_OFFLINE is set")
        try:
            return self._download(file, self._probe(file), folder / file.name, progress)
        except SourceError:
            raise
        except Exception as error:  # its HTTP library's errors are not part of its interface
            lines = str(error).strip().splitlines()
            raise SourceError(lines[0][:300] if lines else type(error).__name__) from error

    def _probe(self, file: File) -> str:
        """The commit that holds the file. Asks once: an unreachable hub costs 5 s, where a download retries for 30."""
        from huggingface_hub import get_hf_file_metadata

        assert file.hub is not None
        url = self._url(file, file.hub.revision)
        found = _within(
            self._patience_s,
            lambda: get_hf_file_metadata(url, timeout=self._patience_s, endpoint=self._endpoint),
        )
        is_sha256 = re.fullmatch("[0-9a-f]{64}", found.etag or "")
        if is_sha256 and found.etag != file.sha256:
            raise SourceError(f"has another file under this name (sha256 {found.etag})")
        return found.commit_hash or file.hub.revision

    def _download(self, file: File, revision: str, target: Path, progress: Progress) -> Path:
        # Not hf_hub_download: it throws away what an interrupted download had fetched.
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # documented, not re-exported

        with target.open("ab") as stream:
            if stream.tell() > file.bytes:
                stream.truncate(0)
            http_get(
                self._url(file, revision),
                stream,
                resume_size=target.stat().st_size,
                headers=build_hf_headers(),
                expected_size=file.bytes,
                tqdm_class=_reporter(file, progress),
            )
        return target

    def _url(self, file: File, revision: str) -> str:
        from huggingface_hub import hf_hub_url

        assert file.hub is not None
        return hf_hub_url(file.hub.repo, file.hub.file, revision=revision, endpoint=self._endpoint)


def _within(seconds: float, call: Callable[[], Result]) -> Result:
    """Bounds the whole call: a connect timeout counts for each address anew, and name resolution has none."""
    outcome: list[Result | Exception] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise SourceError(f"no answer within {seconds:g} s")
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


def _reporter(file: File, progress: Progress) -> Any:
    """A class with the part of tqdm's interface that huggingface_hub uses."""

    class Reporter:
        def __init__(self, *_: Any, initial: int = 0, **__: Any):
            self.done = initial
            self.update(0)

        def __enter__(self) -> "Reporter":
            return self

        def __exit__(self, *_: object) -> None: ...

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            progress.update(file.name, self.done, file.bytes)

    return Reporter
