"""Which models a caller may use."""

import re
from functools import lru_cache

from services.common.account_messages import Principal
from services.common.usage_messages import Tier


def may_use(model: str, tier: Tier, who: Principal) -> bool:
    """A key may name models; what its tier does not have, it cannot name."""
    return _matches(tier.models, model) and (not who.models or model in who.models)


def _matches(names: tuple[str, ...], model: str) -> bool:
    return _pattern(names).fullmatch(model) is not None


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(".*".join(map(re.escape, name.split("*"))) for name in names) or r"(?!)", re.DOTALL)
