"""What usage costs: a table that operators write, and exact arithmetic."""

import re
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from services.common.errors import InvalidRequest
from services.common.reloading import ReloadedFile
from services.common.usage_messages import CLASSES, UsageRecord

SHIPPED = Path(__file__).with_name("prices.toml")
MAX_PRICE = 10**12
"""A million of the currency for a token: more is a slip of the pen."""
MAX_KNOWN = 10_000
PRICED_TOKENS = 1_000_000
"""Prices are for so many tokens."""


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Micro-units for 1,000,000 tokens, and for a second of tool use."""

    prompt: int = 0
    cached: int | None = None
    """None: cached tokens cost what others cost."""
    output: int = 0
    tool_second: int = 0


Rules = list[tuple[re.Pattern[str], Price]]


class _Table:
    """Prices by class and model; the rules of a class are in the order in which they count."""

    def __init__(self, currency: str, rules: Mapping[str, Rules]):
        self.currency = currency
        self._rules = rules
        self._known: dict[tuple[str, str], Price] = {}

    def price(self, kind: str, model: str) -> Price:
        found = self._known.get((kind, model))
        if found is None:
            found = next((price for name, price in self._rules.get(kind, ()) if name.fullmatch(model)), Price())
            if len(self._known) < MAX_KNOWN:
                self._known[kind, model] = found
        return found


class PriceTable:
    """`prices.toml`, or the file at `path`; read again when it changes. Errors at first: `InvalidRequest`."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.monotonic):
        self._file = ReloadedFile(path or SHIPPED, _parsed, clock)

    @property
    def currency(self) -> str:
        return self._file.get().currency

    def cost(self, record: UsageRecord) -> int:
        return cost(record, self._file.get().price(record.kind, record.model))


def cost(record: UsageRecord, price: Price) -> int:
    """Micro-units: the exact sum, rounded up once."""
    cached = min(record.cached_tokens, record.prompt_tokens)
    millionths = (
        (record.prompt_tokens - cached) * price.prompt
        + cached * (price.prompt if price.cached is None else price.cached)
        + record.output_tokens * price.output
        + record.tool_ms * price.tool_second * (PRICED_TOKENS // 1000)
    )
    return -(-millionths // PRICED_TOKENS)


def _parsed(text: bytes) -> _Table:
    try:
        content = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise InvalidRequest(f"not TOML: {e}") from e
    if unknown := content.keys() - {"currency", "prices"}:
        raise InvalidRequest(f"{min(unknown)}: unknown; there are currency and prices.", param=min(unknown))
    currency = content.get("currency", "USD")
    if not isinstance(currency, str) or not re.fullmatch("[A-Z]{3}", currency):
        raise InvalidRequest("currency: three capital letters, as in ISO 4217.", param="currency")
    classes = _mapping(content.get("prices", {}), "prices")
    return _Table(currency, {kind: _rules(kind, models) for kind, models in classes.items()})


def _rules(kind: str, models: Any) -> Rules:
    if kind not in CLASSES:
        raise InvalidRequest(f"prices.{kind}: unknown; the classes are {', '.join(CLASSES)}.", param=f"prices.{kind}")
    prices = {
        name: _price(value, f'prices.{kind}."{name}"') for name, value in _mapping(models, f"prices.{kind}").items()
    }
    return [(_pattern(name), prices[name]) for name in sorted(prices, key=_least_specific_last)]


def _price(value: Any, key: str) -> Price:
    try:
        price = msgspec.convert(value, Price)
    except msgspec.ValidationError as e:
        raise InvalidRequest(f"{key}: {e}.", param=key) from e
    for name, number in msgspec.structs.asdict(price).items():
        if number is not None and not 0 <= number <= MAX_PRICE:
            raise InvalidRequest(f"{key}.{name}: must be between 0 and {MAX_PRICE}.", param=f"{key}.{name}")
    return price


def _mapping(value: Any, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"{key}: must be a table.", param=key)
    return value


def _least_specific_last(name: str) -> tuple[bool, int, str]:
    return "*" in name, -len(name.replace("*", "")), name


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
