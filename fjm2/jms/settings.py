"""Settings of the client's side: the bus has its own (`fjm2.uri.BusConfig`)."""

from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from typing import TYPE_CHECKING

from fjm2.base.errors import ConfigError
from fjm2.bus.inbox import ConsumerSettings
from fjm2.messages.object_codec import SAFE_CODEC, ObjectCodec

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


class SessionMode(IntEnum):
    """Who acknowledges what a session receives, and when."""

    SESSION_TRANSACTED = 0
    """The commit does."""
    AUTO_ACKNOWLEDGE = 1
    """The session does, when `receive` returns the message or the listener returns."""
    CLIENT_ACKNOWLEDGE = 2
    """The client does, by `message.acknowledge()`, for all that its session received."""
    DUPS_OK_ACKNOWLEDGE = 3
    """As AUTO_ACKNOWLEDGE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a connection factory passes to its connections."""

    client_id: str | None = None
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    redeliveries_max: int = 6
    """So many more times a listener in AUTO or DUPS_OK mode gets a message that it raised at."""
    confirm_timeout_s: float = 10.0
    """How long commit and asynchronous sends wait for subscribers to confirm persistent messages."""
    close_timeout_s: float = 2.0
    """How long the close of a connection or session waits while nothing goes on: no data are sent, nobody confirms."""
    codec: ObjectCodec = SAFE_CODEC
    """How object messages become bytes and objects again."""
    telemetry: "bool | TracerProvider" = False
    """Whether sends and listeners are spans of OpenTelemetry, by the program's own tracer provider or another one."""

    def __post_init__(self) -> None:
        if self.telemetry is not False:
            _check_telemetry(self.telemetry)
        if self.redeliveries_max < 0:
            raise ConfigError(f"redeliveries_max={self.redeliveries_max}: expected 0 or more")
        for name in ("confirm_timeout_s", "close_timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)}: expected more than 0")


def _check_telemetry(value: object) -> None:
    if value is not True and not hasattr(value, "get_tracer"):
        raise ConfigError(f"telemetry={value!r}: expected True, False or a tracer provider")
    try:
        import_module("fjm2.telemetry")
    except ImportError as error:
        raise ConfigError(str(error)) from error
