"""Settings of connections and sessions. Settings of the bus are in `fjm2.uri.BusConfig`."""

import os
from dataclasses import dataclass, field
from enum import IntEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import check_count, seconds_setting
from fjm2.bus.inbox import ConsumerSettings, Overflow, settings_with
from fjm2.messages.object_codec import SAFE_CODEC, ObjectCodec

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from fjm2.norm import Fec, Flow, Sync  # at run time, only with a connection: this loads the engine

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


Amount: TypeAlias = float | str
"""A number, or a text with a unit, such as `500ms`, `10Mbit` or `64MiB`."""
Switch: TypeAlias = bool | Literal["on", "off", "true", "false", "yes", "no"]

OverflowName: TypeAlias = Literal["block", "drop_oldest", "drop_newest"]
"""An `Overflow`, by its name."""


class ConnectionOptions(TypedDict, total=False):
    """Options of a connection factory. All may be left out."""

    keep: str | os.PathLike[str] | None
    """Directory of a keeper inside this process."""
    replicas: int
    """Number of keepers that the cell has, if that keeper founds one: 1, 3 or 5."""
    outbox: str | os.PathLike[str] | None
    """Directory that keeps the connection's own PERSISTENT messages until keepers have stored them."""
    outbox_bytes_max: int
    """Number of bytes that all files of the outbox may take."""
    client_id: str | None
    """Client id of the connections."""
    redeliveries_max: int
    """Greatest number of times that a message is delivered again because a listener raised."""
    confirm_timeout_s: Amount
    """Time for which commits and asynchronous sends wait for subscribers to confirm messages."""
    close_timeout_s: Amount
    """Time without progress after which a close gives up."""
    codec: ObjectCodec
    """Codec of the bodies of object messages."""
    telemetry: "bool | TracerProvider"
    """True, or a tracer provider, to record spans of OpenTelemetry."""
    overflow: Overflow | OverflowName
    """Behaviour of a full consumer."""
    messages_max: int
    """Greatest number of messages that a consumer holds."""
    bytes_max: int
    """Greatest number of bytes that the messages of a consumer have."""
    block_s: Amount
    """Longest time for which a full consumer holds senders up without taking a message."""
    interface: str | None
    """Name or address of the network interface."""
    ttl: int | str
    """Number of hops that multicast datagrams may take: 0 keeps them on this host, 1 in this network."""
    dscp: int | str
    """Traffic class for routers and switches (RFC 4594)."""
    loopback: Switch
    """True if programs on this host receive what is sent."""
    files_directory: str | None
    """Folder for files that are received as bodies of messages, until they are saved."""
    files_bytes_max: Amount
    """Maximum number of bytes on disk of files that are being received, or belong to messages that are in use."""
    segment_bytes: Amount
    """Payload of one datagram in bytes, without headers."""
    block_segments: int | str
    """Number of source segments in a block."""
    fec: "Fec | Literal['none', 'rs', 'nocode']"
    """Code by which the sender makes parity."""
    parity_segments: int | str
    """Maximum number of parity symbols of a block; 0 unless `fec` is `Fec.RS`."""
    auto_parity: int | str
    """Number of parity symbols that follow every block, before any receiver requests them."""
    rate: Amount | None
    """The same as `rate_bps`, where 0 means no limit."""
    rate_bps: Amount | None
    """Highest rate of NORM messages in bits per second; None for no limit."""
    flow: "Flow | Literal['min', 'named', 'max']"
    """Receivers that the sender waits for."""
    window_bytes: Amount
    """How far the sender may be ahead of the slowest receiver that it waits for, in bytes."""
    patience_s: Amount
    """Silence after which others go on without a receiver, until it answers again."""
    ack_timeout_s: Amount
    """Silence in seconds after which a receiver is given up and reported."""
    cc: Switch
    """Congestion control of RFC 5740 (TFMCC)."""
    grtt_s: Amount
    """Estimate of the group's round-trip time in seconds that is used until receivers have answered a probe."""
    grtt_min_s: Amount
    """Lower bound of the estimated round-trip time in seconds, however quick answers are."""
    grtt_max_s: Amount
    """Upper bound of the estimated round-trip time in seconds, whatever receivers claim."""
    backoff_factor: int | str
    """Factor K of RFC 5740: receivers wait up to K round-trip times before a NACK, so that one NACK can serve all."""
    group_size: int | str
    """Number of receivers to expect."""
    robust_factor: int | str
    """Number of times that a FLUSH, a watermark request or a robust command is sent."""
    cache_objects: int | str
    """Maximum number of objects held for repair, including those being sent."""
    cache_bytes: Amount
    """Maximum number of bytes held for repair in memory."""
    stream_bytes: Amount
    """How much of a stream may be unconfirmed, or wait to be sent, in bytes."""
    repair_bytes: Amount
    """How much of a stream is kept beyond that, for receivers that were silent for a while."""
    sync: "Sync | Literal['current', 'stream', 'all']"
    """Point at which reception of a sender's objects begins."""
    unicast_nack: Switch
    """True to send NACKs and ACKs to the sender alone."""
    silent: Switch
    """True to send neither NACKs nor ACKs."""
    file_directory: str | None
    """Directory in which to write files while they arrive."""
    object_bytes_max: Amount
    """Size in bytes of the largest object accepted in memory."""
    file_bytes_max: Amount
    """Size in bytes of the largest file accepted."""
    stream_bytes_max: Amount
    """Maximum number of bytes of a stream kept while earlier ones are missing."""
    total_bytes_max: Amount
    """Maximum number of bytes of memory for the objects of all senders together."""
    objects_max: int | str
    """Number of a sender's newest objects that are received."""
    senders_max: int | str
    """Most remote senders known at once."""
    inactivity_s: Amount
    """Seconds of silence after which a sender is forgotten and its incomplete objects are lost."""


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
