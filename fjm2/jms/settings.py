"""Settings of the client's side: the bus has its own (`fjm2.uri.BusConfig`)."""

from dataclasses import dataclass
from enum import Enum, IntEnum

from fjm2.errors import ConfigError

from .object_codec import SAFE_CODEC, ObjectCodec


class SessionMode(IntEnum):
    """Who acknowledges what a session receives, and when."""

    SESSION_TRANSACTED = 0
    AUTO_ACKNOWLEDGE = 1
    CLIENT_ACKNOWLEDGE = 2
    DUPS_OK_ACKNOWLEDGE = 3


class Overflow(Enum):
    """What a full consumer does."""

    BLOCK = "block"
    """Hold back the senders, and with them all that this process receives from the bus."""
    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """What a consumer may hold, messages that are not yet acknowledged included."""

    overflow: Overflow = Overflow.BLOCK
    max_messages: int = 100_000
    max_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.max_messages < 1:
            raise ConfigError(f"max_messages={self.max_messages}: expected at least 1")
        if self.max_bytes < 1:
            raise ConfigError(f"max_bytes={self.max_bytes}: expected at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a connection factory passes to its connections."""

    client_id: str | None = None
    consumer: ConsumerSettings = ConsumerSettings()
    redeliveries_max: int = 6
    """So many more times a listener in AUTO or DUPS_OK mode gets a message that it raised at."""
    confirm_timeout_s: float = 10.0
    """How long commit and asynchronous sends wait for subscribers to confirm persistent messages."""
    close_timeout_s: float = 2.0
    """Likewise, when a connection or session is closed."""
    codec: ObjectCodec = SAFE_CODEC
    """How object messages become bytes and objects again."""

    def __post_init__(self) -> None:
        if self.redeliveries_max < 0:
            raise ConfigError(f"redeliveries_max={self.redeliveries_max}: expected 0 or more")
        for name in ("confirm_timeout_s", "close_timeout_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name}={getattr(self, name)}: expected more than 0")


def overflow_of(value: "Overflow | str") -> Overflow:
    try:
        return Overflow(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in Overflow)
        raise ConfigError(f"overflow={value!r}: expected one of {known}") from None
