"""Settings of the edge."""

from pydantic import Field

from services.common.settings import Settings


class GatewaySettings(Settings):
    max_body_bytes: int = Field(
        8 << 20, ge=1, description="Bodies larger than this get 413 before they are read whole."
    )
    max_head_bytes: int = Field(64 << 10, ge=1, description="Request lines and headers larger than this get 431.")
    body_timeout: float = Field(
        10.0, ge=0, description="Seconds a client may take to send its headers, and then its body."
    )
    heartbeat: float = Field(15.0, ge=0, description="Seconds of silence after which a stream gets a comment.")
    stall_timeout: float = Field(
        30.0, ge=0, description="Seconds a client may leave its stream unread before it is cut."
    )
    drain_timeout: float = Field(30.0, ge=0, description="Seconds that streams get to finish after SIGTERM.")
    region: str = Field("", description="The region of this gateway; unset, it serves organisations of all regions.")
    region_hosts: dict[str, str] = Field(
        {}, description="JSON, from region to host: where organisations of other regions are sent."
    )
    max_choices: int = Field(16, ge=1, le=128, description="The largest n.")
