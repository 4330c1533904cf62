"""What limits and the usage ledger say to each other and to the edge.

Token counts are in tokens of the served model; money is in integer micro-units (millionths) of the price table's
currency; times are seconds since the epoch (UTC) unless said otherwise.
"""

from typing import Literal

from msgspec import Struct

from services.common.account_messages import Principal
from services.common.messages import Admitted

Subject = Literal["organisation", "user", "key"]
CLASSES = ("chat", "embedding", "image", "audio", "tool")
"""Of models: what limits, prices and usage are told apart by."""


class Limits(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Of one subject and one class of models. None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrent_streams: int | None = None


class Tier(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    name: str
    limits: dict[str, dict[Subject, Limits]] = {}
    """By class of models (chat, embedding …), then by whose they are."""
    monthly_budget: int | None = None
    """Micro-units that an organisation may spend in a calendar month (UTC). None: no limit."""
    weight: float = 1.0
    """The share in the scheduler's fair queue."""
    scheduling: Literal["interactive", "standard", "batch"] = "standard"
    models: tuple[str, ...] = ("*",)
    """Names, with * for any part of a name."""
    tools: tuple[str, ...] = ("*",)
    max_context: int | None = None
    """Prompt and completion together."""
    max_output_tokens: int = 4096
    """The most that one choice may generate, and what is reserved for a request that says no less."""


class Ask(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a request may cost at most, to be reserved before it runs."""

    principal: Principal
    model_class: str = "chat"
    requests: int = 1
    tokens: int = 0
    cost: int = 0


class Reservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was granted. Whoever holds it renews it, and settles it once."""

    id: str = ""
    """"" where nothing is limited, and nothing is to be settled."""
    tenant: str = ""
    admitted: Admitted = Admitted()


class Settlement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reservation has really cost. The first one counts, later ones do nothing."""

    id: str
    tenant: str
    tokens: int
    cost: int = 0


Outcome = Literal["finished", "cancelled", "failed", "crashed"]


class UsageRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one generation used. Immutable; recording the same id again changes nothing."""

    id: str
    tenant: str
    at: float
    """When it ended."""
    kind: str = "chat"
    """The class of the model: chat, embedding; image, audio and tool are to come."""
    model: str = ""
    worker: str = ""
    user_id: str = ""
    key_id: str = ""
    project: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompt's."""
    output_tokens: int = 0
    reasoning_tokens: int = 0
    """Of the output's."""
    tool_ms: int = 0
    outcome: Outcome = "finished"
    cost: int = 0


Grouping = Literal["model", "key_id", "user_id", "project", "kind", "outcome"]


BucketSize = Literal["hour", "day", "month", "all"]


class UsageQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """start ≤ at < end. None: any. Days and months are calendar ones, UTC."""

    tenant: str
    start: float
    end: float
    model: str | None = None
    key_id: str | None = None
    user_id: str | None = None
    project: str | None = None
    group_by: tuple[Grouping, ...] = ()
    bucket: BucketSize = "day"
    after: str | None = None
    """Records only: the id after which to go on."""
    limit: int = 1000


class UsageTotal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    start: float
    """Of its hour, day or month; of the query for "all"."""
    group: dict[str, str] = {}
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    tool_ms: int = 0
    cost: int = 0


class RecordPage(Struct, frozen=True):
    """Oldest first."""

    items: tuple[UsageRecord, ...]
    more: bool


class OpenUsage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A generation that has begun: enough to charge it if this process dies."""

    record: UsageRecord
    """Its tokens are counted separately, as they come."""
    reservation: str = ""
