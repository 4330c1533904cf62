"""The tiers file: what each tier may use. Every process reads the same one."""

import time
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_args

import msgspec
from pydantic import Field

from services.common.errors import InvalidRequest
from services.common.reloading import ReloadedFile
from services.common.settings import Settings
from services.common.usage_messages import CLASSES, Limits, Subject, Tier

SHIPPED = Path(__file__).with_name("tiers.toml")
SUBJECTS: tuple[Subject, ...] = get_args(Subject)
MAX_NUMBER = 10**15
"""Beyond it, limits could no longer be kept exactly in floating point."""
T = TypeVar("T")


class TierSettings(Settings):
    tiers: Path | None = Field(None, description="The tiers file; None: the one that is shipped.")


class TierFile:
    """`tiers.toml`, or the file at `path`; read again when it changes.

    Errors at first: `InvalidRequest`, which names file, tier and field.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic):
        self._file = ReloadedFile(path or SHIPPED, _parsed, clock)

    def tier(self, name: str) -> Tier:
        tiers = self._file.get()
        try:
            return tiers[name]
        except KeyError:
            raise InvalidRequest(f"There is no such tier; there are {', '.join(tiers)}.", param="tier") from None

    def all(self) -> Mapping[str, Tier]:
        return self._file.get()


def _parsed(text: bytes) -> Mapping[str, Tier]:
    try:
        content = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InvalidRequest(f"not TOML: {e}") from e
    if not content:
        raise InvalidRequest("there is no tier in it.")
    return MappingProxyType({name: _tier(name, table) for name, table in content.items()})


def _tier(name: str, table: Any) -> Tier:
    fields = _table(table, name)
    if "name" in fields:
        raise InvalidRequest(f"{name}.name: a tier is named by its table.", param=f"{name}.name")
    classes = _table(fields.get("limits", {}), f"{name}.limits")
    _check_known(classes, CLASSES, f"{name}.limits", "classes")
    limits = {each: _subjects(value, f"{name}.limits.{each}") for each, value in classes.items()}
    tier = _converted(fields | {"name": name, "limits": {}}, Tier, name)
    _check_numbers(tier, name)
    return msgspec.structs.replace(tier, limits=limits)


def _subjects(table: Any, where: str) -> dict[Subject, Limits]:
    subjects = _table(table, where)
    _check_known(subjects, SUBJECTS, where, "subjects")
    found = {}
    for subject in SUBJECTS:
        if subject in subjects:
            found[subject] = _converted(subjects[subject], Limits, f"{where}.{subject}")
            _check_numbers(found[subject], f"{where}.{subject}")
    return found


def _converted(value: Any, kind: type[T], where: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
        raise InvalidRequest(f"{where}: {e}.", param=where) from e


def _check_numbers(struct: msgspec.Struct, where: str) -> None:
    for field, value in msgspec.structs.asdict(struct).items():
        if isinstance(value, int | float) and not 0 < value <= MAX_NUMBER:
            raise InvalidRequest(
                f"{where}.{field}: must be above 0 and at most {MAX_NUMBER}.", param=f"{where}.{field}"
            )


def _check_known(names: Iterable[str], known: Sequence[str], where: str, what: str) -> None:
    for name in names:
        if name not in known:
            raise InvalidRequest(
                f"{where}.{name}: unknown; the {what} are {', '.join(known)}.", param=f"{where}.{name}"
            )


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{where}: must be a table.", param=where)
    return value
