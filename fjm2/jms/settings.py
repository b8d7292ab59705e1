"""Settings of connections and sessions. Settings of the bus are in `fjm2.uri.BusConfig`."""

import os
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import check_count, seconds_setting
from fjm2.bus.inbox import ConsumerSettings, settings_with
from fjm2.messages.object_codec import SAFE_CODEC, ObjectCodec

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


_REPLICAS: Final = (1, 3, 5)
OUTBOX_BYTES_LEAST: Final = 32 << 20
"""Size of the smallest outbox, in bytes."""


class SessionMode(IntEnum):
    """Modes of acknowledging the messages that a session receives."""

    SESSION_TRANSACTED = 0
    """A commit acknowledges the messages received in the transaction."""
    AUTO_ACKNOWLEDGE = 1
    """The session acknowledges a message when `receive` returns it, or the listener returns."""
    CLIENT_ACKNOWLEDGE = 2
    """`message.acknowledge()` acknowledges everything that the session received."""
    DUPS_OK_ACKNOWLEDGE = 3
    """The same as AUTO_ACKNOWLEDGE, but messages of durable subscriptions are acknowledged many at a time, a little
    later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings that a connection factory passes to its connections."""

    client_id: str | None = None
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    redeliveries_max: int = 6
    """Greatest number of times that a message is delivered again because a listener raised, in AUTO or DUPS_OK mode."""
    confirm_timeout_s: float = 10.0
    """Time for which commits and asynchronous sends wait for subscribers to confirm persistent messages, and all sends
    for a gate to say that a message is stored."""
    close_timeout_s: float = 2.0
    """Time without progress (data sent, or confirmed) after which the close of a connection or session gives up."""
    codec: ObjectCodec = SAFE_CODEC
    """Codec of the bodies of object messages."""
    telemetry: "bool | TracerProvider" = False
    """True, or a tracer provider, to record sends and listener calls as spans of OpenTelemetry."""
    keep: str | os.PathLike[str] | None = None
    """Directory of a keeper inside this process, or None for no keeper. If its disk is lost, everything in it is."""
    replicas: int = 1
    """Keepers that the cell has, if the keeper founds one."""
    outbox: str | os.PathLike[str] | None = None
    """Directory that keeps the connection's own PERSISTENT messages until keepers have stored them, or None."""
    outbox_bytes_max: int = 1 << 30
    """Bytes that all files of the outbox may take."""

    def __post_init__(self) -> None:
        if self.telemetry is not False:
            _check_telemetry(self.telemetry)
        if not isinstance(self.client_id, str | None) or self.client_id == "":
            raise ConfigError(f"client_id={self.client_id!r}: expected a string that is not empty")
        if self.client_id is not None and not can_be_encoded(self.client_id):
            raise ConfigError(f"client_id={self.client_id!r}: has a lone surrogate, expected what UTF-8 can encode")
        check_count("redeliveries_max", self.redeliveries_max, 0)
        for name in ("confirm_timeout_s", "close_timeout_s"):
            seconds = seconds_setting(name, getattr(self, name))
            if not seconds > 0:
                raise ConfigError(f"{name}={seconds}: expected more than 0 seconds")
            object.__setattr__(self, name, seconds)  # a text becomes a number
        if not all(callable(getattr(self.codec, method, None)) for method in ("encode", "decode")):
            raise ConfigError(f"codec={self.codec!r}: expected an object with encode and decode, such as PickleCodec")
        self._check_keeper()

    def _check_keeper(self) -> None:
        for name in ("keep", "outbox"):
            value = getattr(self, name)
            if value is not None:
                is_path = isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str)
                if not is_path or not os.fspath(value):
                    raise ConfigError(f"{name}={value!r}: expected a directory, as in {name}='store'")
                object.__setattr__(self, name, Path(value).absolute())
        check_count("outbox_bytes_max", self.outbox_bytes_max, OUTBOX_BYTES_LEAST)
        if isinstance(self.replicas, bool) or self.replicas not in _REPLICAS:
            raise ConfigError(f"replicas={self.replicas!r}: expected 1, 3 or 5")
        if self.replicas != 1 and self.keep is None:
            raise ConfigError(f"replicas={self.replicas}: expected keep=DIRECTORY with it")


def _check_telemetry(value: object) -> None:
    if value is not True and not hasattr(value, "get_tracer"):
        raise ConfigError(f"telemetry={value!r}: expected True, False or a tracer provider")
    try:
        import_module("fjm2.telemetry")
    except ImportError as error:
        raise ConfigError(str(error)) from error


def check_bounds(**bounds: Any) -> None:
    """Raise ConfigError if an argument of `create_consumer` that bounds what a consumer holds is wrong."""
    settings_with(ConsumerSettings(), **bounds)


def can_be_encoded(text: str) -> bool:
    """Return True if UTF-8 can encode a text: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
