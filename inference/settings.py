"""Settings of the engines that run on this machine."""

import os

from pydantic import Field

from services.common.settings import Settings


class LlamaCppSettings(Settings):
    """The embedded engine: sized for a small machine."""

    context_window: int = Field(8192, ge=256, description="Tokens of prompt and completion that one sequence may hold.")
    parallel: int = Field(8, ge=1, le=64, description="Sequences decoded together; more wait in the engine.")
    threads: int = Field(default_factory=lambda: max(1, min(16, len(os.sched_getaffinity(0)))), ge=1)
    prefill_batch: int = Field(
        64, ge=8, description="Prompt tokens between two looks at everything else: cancellations, other streams."
    )
    prompt_cache_mib: int = Field(512, ge=0, description="Memory for the KV of prompts that left their slot.")
    start_timeout: float = Field(180.0, gt=0, description="Seconds from start to ready before the engine is given up.")
