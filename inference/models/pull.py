"""From a name to verified files on disk."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import Timeout
from rich.filesize import decimal

from inference.models.cache import Cache, sha256, used
from inference.models.errors import ModelUnavailable, SourceError
from inference.models.messages import File, Model
from inference.models.progress import Progress, Silent
from inference.models.settings import ModelSettings
from inference.models.sources import Source, sources

SPARE_BYTES = 64 << 20


def ensure(
    model: Model,
    progress: Progress | None = None,
    *,
    settings: ModelSettings | None = None,
    origins: Sequence[Source] | None = None,
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free,
) -> dict[str, Path]:
    """The model's files by name, pulled if they are absent or damaged. Blocks, for minutes on a first start.

    Safe to call from several processes at once, and to interrupt: the next call continues. Raises ModelUnavailable.
    """
    settings = settings or ModelSettings()
    cache = Cache(settings.models)
    pull = Pull(
        model, cache, progress or Silent(), sources(settings.model_sources) if origins is None else origins, free
    )
    try:
        if pull.wanted():
            pull.run()
    except OSError as error:
        raise ModelUnavailable(f"Cannot keep the model {model.name} in {cache.root}: {error}") from error
    return cache.paths(model)


class Pull:
    def __init__(
        self,
        model: Model,
        cache: Cache,
        progress: Progress,
        origins: Sequence[Source],
        free: Callable[[Path], int],
    ):
        self._model = model
        self._cache = cache
        self._progress = progress
        self._origins = origins
        self._free = free
        self._partial = cache.partial(model)

    def wanted(self) -> dict[str, str]:
        """The files to pull, each with what is wrong with it."""
        checks = {file.name: self._cache.check(self._model, file) for file in self._model.files}
        wanted = {name: check for name, check in checks.items() if check.status != "ok"}
        if wanted and self._model.local:
            raise ModelUnavailable(f"{self._model.local} is not there.")
        return {name: check.reason if check.status == "damaged" else "" for name, check in wanted.items()}

    def run(self) -> None:
        lock = self._cache.lock(self._model)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            self._progress.note(f"Another process is pulling {self._model.name}: waiting for it.")
            lock.acquire()
        try:
            wanted = self.wanted()
            for name, reason in wanted.items():
                if reason:
                    self._progress.note(f"{self._model.name}/{name} is damaged ({reason}): pulling it again.")
            files = [file for file in self._model.files if file.name in wanted]
            self._partial.mkdir(parents=True, exist_ok=True)
            self._need_room(files)
            for file in files:
                self._obtain(file)
            shutil.rmtree(self._partial)
        finally:
            lock.release()

    def _need_room(self, files: Sequence[File]) -> None:
        scratch = [origin.scratch(file) for file in files for origin in self._origins if origin.offer(file)]
        need = sum(file.bytes for file in files) + max(scratch, default=0) + SPARE_BYTES - used(self._partial)
        if (free := self._free(self._partial)) < need:
            raise ModelUnavailable(
                f"Not enough disk for {self._model.name}: {self._cache.root} has {decimal(free)} free, "
                f"and the pull needs {decimal(need)}. Free some, or set ANTIPHON_MODELS to a folder on a larger disk."
            )

    def _obtain(self, file: File) -> None:
        failures = []
        for origin in self._origins:
            if not (place := origin.offer(file)):
                continue
            self._progress.note(f"{file.name}: from {place}")
            try:
                self._keep(file, self._fetch(file, origin))
            except (SourceError, OSError) as error:
                failures.append(f"{place}: {error}")
                self._progress.note(failures[-1])
            else:
                return
        raise ModelUnavailable(self._despair(file, failures))

    def _fetch(self, file: File, origin: Source) -> Path:
        """A file with the right hash. A beginning that was continued may have been bad: then once more from nothing."""
        continued = (self._partial / file.name).exists()
        fetched = origin.fetch(file, self._partial, self._progress)
        if (digest := sha256(fetched)) == file.sha256:
            return fetched
        fetched.unlink()
        if continued:
            return self._fetch(file, origin)
        raise SourceError(f"delivered a file with sha256 {digest}, not {file.sha256}")

    def _keep(self, file: File, fetched: Path) -> None:
        path = self._cache.path(self._model, file)
        os.replace(fetched, path)
        self._cache.stamp(path, file)

    def _despair(self, file: File, failures: Sequence[str]) -> str:
        tried = [f"  tried {failure}" for failure in failures] or ["  no source is allowed: see ANTIPHON_MODEL_SOURCES"]
        remedy = (
            f"  put the file at {self._cache.path(self._model, file)}, set ANTIPHON_MODELS to a cache that has it, "
            "or give a local file: MODEL=/path/to/file.gguf"
        )
        return "\n".join([f"Cannot get {file.name} of the model {self._model.name}.", *tried, remedy])
