"""docs/settings.md names every setting, and none that is not there."""

import re
from pathlib import Path

from deploy.settings import ServeSettings
from gateway.oidc_settings import OidcSettings
from gateway.settings import GatewaySettings
from inference.models.settings import ModelSettings
from inference.settings import LlamaCppSettings
from safety.settings import SafetySettings
from services.accounts.tiers import TierSettings
from services.common.settings import Settings
from services.ledger.settings import LedgerSettings

ROOT = Path(__file__).parents[2]
ALL = (
    ServeSettings, GatewaySettings, ModelSettings, LlamaCppSettings, SafetySettings, TierSettings, LedgerSettings, OidcSettings,
)  # fmt: skip


def names(settings: type[Settings]) -> set[str]:
    """Without the prefix that all have."""
    own = str(settings.model_config["env_prefix"]).removeprefix("ANTIPHON_").lower()
    return {own + field for field in settings.model_fields}


def test_every_setting_is_documented_and_every_documented_one_exists() -> None:
    rows = [
        line.split("|")[1] for line in (ROOT / "docs/settings.md").read_text().splitlines() if line.startswith("| `")
    ]
    documented = {name.lower() for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    assert documented == {name for settings in ALL for name in names(settings)}
