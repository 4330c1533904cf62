"""Settings of the screen."""

from pydantic import Field

from services.common.settings import Settings


class SafetySettings(Settings):
    blocked_phrases: tuple[str, ...] = Field(
        (), description="A JSON list of phrases that no prompt or answer may hold."
    )
