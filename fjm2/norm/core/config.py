"""Settings of a NORM session. Each object of settings is checked once, when it is made: types, then bounds."""

import os
from dataclasses import dataclass, field
from enum import Enum

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import check_fields

from .wire import NODE_ANY, NODE_NONE, FecId


class Fec(Enum):
    """Forward error correction: the code by which a sender makes parity for its data."""

    NONE = "none"
    """No parity, announced as FEC Encoding ID 5. libnorm accepts this form."""
    RS = "rs"
    """Reed-Solomon over GF(2^8), FEC Encoding ID 5."""
    NOCODE = "nocode"
    """No parity, announced as FEC Encoding ID 0 (compact no-code). libnorm does not accept this form."""

    @property
    def fec_id(self) -> FecId:
        """FEC Encoding ID that stands for this code on the wire."""
        return FecId.COMPACT_NO_CODE if self is Fec.NOCODE else FecId.REED_SOLOMON_8


class Flow(Enum):
    """Choice of the receivers that a sender waits for. It never gets more than a window ahead of any of them."""

    MIN = "min"
    """All receivers that answer. The slowest of them sets the pace."""
    NAMED = "named"
    """Receivers that the application names. The slowest of them sets the pace."""
    MAX = "max"
    """No receivers. A receiver that cannot keep up loses data, and its application is told of the loss."""


class Sync(Enum):
    """Point at which reception of a sender's objects begins."""

    CURRENT = "current"
    """The first object whose beginning is heard; in a stream, the first segment heard."""
    STREAM = "stream"
    """Like CURRENT, except that streams are requested from their beginning, as far as the sender still holds it."""
    KEPT = "kept"
    """Like STREAM, but only what its sender wants kept of a stream is received, as keepers do."""
    ALL = "all"
    """As far back as the window reaches: up to `objects_max - 1` objects before the first object heard."""


def _check(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise ConfigError.of(name, value, expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """Settings of a sender."""

    segment_bytes: int = 1400
    """Payload of one datagram in bytes, without headers. Larger segments need fewer headers; each loss costs more."""
    block_segments: int = 64
    """Number of source segments in a block. Larger blocks make parity stronger and decoding slower."""
    fec: Fec = Fec.NONE
    """Code by which the sender makes parity (forward error correction)."""
    parity_segments: int = 0
    """Maximum number of parity symbols of a block; 0 unless `fec` is `Fec.RS`."""
    auto_parity: int = 0
    """Number of parity symbols that follow every block, before any receiver requests them."""
    rate_bps: float | None = 100e6
    """Highest rate of NORM messages in bits per second; None for no limit."""
    flow: Flow = Flow.MAX
    """Receivers that the sender waits for: all that answer (min), those the application names (named), none (max)."""
    window_bytes: int = 32 << 20
    """How far the sender may be ahead of the slowest receiver that it waits for, in bytes."""
    patience_s: float = 0.2
    """Silence in seconds after which others go on without a receiver. It is waited for again as soon as it answers.

    It lasts at least four round trips, and 8 ms for each receiver that is waited for, but not past `ack_timeout_s`."""
    ack_timeout_s: float = 5.0
    """Silence in seconds after which a receiver is given up and reported."""
    cc: bool = False
    """Congestion control of RFC 5740 (TFMCC). `rate_bps` is then only an upper bound."""
    grtt_s: float = 0.01
    """Estimate of the group's round-trip time in seconds that is used until receivers have answered a probe."""
    grtt_min_s: float = 0.001
    """Lower bound of the estimated round-trip time in seconds, however quick answers are."""
    grtt_max_s: float = 10.0
    """Upper bound of the estimated round-trip time in seconds, whatever receivers claim."""
    backoff_factor: int = 4
    """Factor K of RFC 5740: receivers wait up to K round-trip times before a NACK, so that one NACK can serve all."""
    group_size: int = 1000
    """Number of receivers to expect. It tunes NACK suppression; the order of magnitude is enough."""
    robust_factor: int = 20
    """Number of times that a FLUSH, a watermark request or a robust command is sent."""
    cache_objects: int = 256
    """Maximum number of objects held for repair, including those being sent."""
    cache_bytes: int = 256 << 20
    """Maximum number of bytes held for repair in memory. Files do not count."""
    stream_bytes: int = 16 << 20
    """How much of a stream may be unconfirmed, or wait to be sent, in bytes."""
    repair_bytes: int = 64 << 20
    """How much of a stream is kept beyond that, for receivers that were silent for a while. Unused with `flow=max`."""

    def __post_init__(self) -> None:
        check_fields(self)
        is_rs = self.fec is Fec.RS
        _check(64 <= self.segment_bytes <= 65_000, "segment_bytes", self.segment_bytes, "64 to 65000")
        _check(1 <= self.block_segments <= 255, "block_segments", self.block_segments, "1 to 255")
        most = 255 - self.block_segments if is_rs else 0
        expected = f"0 to {most} (255 - block_segments)" if is_rs else "0, or fec=rs"
        _check(0 <= self.parity_segments <= most, "parity_segments", self.parity_segments, expected)
        auto = f"0 to parity_segments ({self.parity_segments})"
        _check(0 <= self.auto_parity <= self.parity_segments, "auto_parity", self.auto_parity, auto)
        rate = self.rate_bps
        _check(rate is None or 1_000 <= rate <= 1e12, "rate_bps", rate, "1e3 to 1e12 bits per second, or None")
        _check(self.window_bytes >= 2 * self.segment_bytes, "window_bytes", self.window_bytes, "two segments or more")
        _check(self.patience_s > 0, "patience_s", self.patience_s, "more than 0")
        _check(self.ack_timeout_s > 0, "ack_timeout_s", self.ack_timeout_s, "more than 0")
        _check(1e-6 <= self.grtt_min_s <= self.grtt_max_s <= 1000, "grtt_min_s", self.grtt_min_s, "1e-6 to grtt_max_s")
        bounds = f"{self.grtt_min_s} to {self.grtt_max_s}"
        _check(self.grtt_min_s <= self.grtt_s <= self.grtt_max_s, "grtt_s", self.grtt_s, bounds)
        _check(0 <= self.backoff_factor <= 15, "backoff_factor", self.backoff_factor, "0 to 15")
        _check(1 <= self.group_size <= 500_000_000, "group_size", self.group_size, "1 to 5e8")
        _check(1 <= self.robust_factor <= 1000, "robust_factor", self.robust_factor, "1 to 1000")
        _check(1 <= self.cache_objects <= 0x4000, "cache_objects", self.cache_objects, "1 to 16384")
        _check(self.cache_bytes >= 1 << 16, "cache_bytes", self.cache_bytes, "65536 or more")
        _check(self.stream_bytes >= 1, "stream_bytes", self.stream_bytes, "1 or more")
        _check(self.repair_bytes >= 0, "repair_bytes", self.repair_bytes, "0 or more")

    @property
    def stream_blocks(self) -> int:
        """Number of blocks that may be unconfirmed: all that fit, but enough to send some while others are repaired."""
        return min(max(self.stream_bytes // self._block_bytes, 4), self._ring_blocks_max)

    @property
    def history_blocks(self) -> int:
        """Number of blocks that are kept beyond those."""
        kept = 0 if self.flow is Flow.MAX else self.repair_bytes // self._block_bytes
        return min(kept, self._ring_blocks_max - self.stream_blocks)

    @property
    def _block_bytes(self) -> int:
        return self.segment_bytes * self.block_segments

    @property
    def _ring_blocks_max(self) -> int:
        """Maximum number of blocks in a stream's buffer: well below the number at which block numbers wrap."""
        return 1 << ((16 if self.fec is Fec.NOCODE else 24) - 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverConfig:
    """Settings of reception, which apply to every remote sender."""

    sync: Sync = Sync.STREAM
    """Point at which reception of a sender's objects begins."""
    unicast_nack: bool = False
    """True to send NACKs and ACKs to the sender alone. The sender then repeats the requests to the group."""
    silent: bool = False
    """True to send neither NACKs nor ACKs."""
    file_directory: str | None = None
    """Directory in which to write files while they arrive. None keeps files in memory."""
    object_bytes_max: int = 1 << 30
    """Size in bytes of the largest object accepted in memory. It cannot exceed `total_bytes_max`."""
    file_bytes_max: int = 1 << 40
    """Larger files are refused."""
    stream_bytes_max: int = 128 << 20
    """Maximum number of bytes of a stream kept while earlier ones are missing. A sender with a smaller buffer gets
    less."""
    total_bytes_max: int = 2 << 30
    """Maximum number of bytes of memory for the objects of all senders together."""
    objects_max: int = 256
    """Number of a sender's newest objects that are received. Older incomplete objects, except streams, are given up."""
    senders_max: int = 1024
    """Most remote senders known at once. A new one replaces the longest silent one that never sent anything useful, or
    else one that was heard only once and has been silent for a second, or has been silent for a quarter of
    `inactivity_s`.
    """
    inactivity_s: float = 100.0
    """Seconds of silence after which a sender is forgotten and its incomplete objects are lost. libnorm can be silent
    for 30 s."""

    def __post_init__(self) -> None:
        check_fields(self)
        _check(self.object_bytes_max >= 1, "object_bytes_max", self.object_bytes_max, "1 or more")
        _check(self.file_bytes_max >= 1, "file_bytes_max", self.file_bytes_max, "1 or more")
        _check(self.stream_bytes_max >= 1 << 16, "stream_bytes_max", self.stream_bytes_max, "65536 or more")
        _check(self.total_bytes_max >= 1 << 16, "total_bytes_max", self.total_bytes_max, "65536 or more")
        _check(1 <= self.objects_max <= 0x4000, "objects_max", self.objects_max, "1 to 16384")
        _check(self.senders_max >= 1, "senders_max", self.senders_max, "1 or more")
        _check(self.inactivity_s > 0, "inactivity_s", self.inactivity_s, "more than 0")
        directory = self.file_directory
        is_usable = directory is None or os.path.isdir(directory)
        _check(is_usable, "file_directory", directory, "an existing directory")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """Settings of one node of a NORM session."""

    node_id: int
    """Id of the node: 1 to 0xfffffffe, and unique in the group."""
    sender: SenderConfig = field(default_factory=SenderConfig)
    """Settings of the node's sender."""
    receiver: ReceiverConfig | None = field(default_factory=ReceiverConfig)
    """Settings of reception; None for a node that only sends, and ignores other senders at no cost."""

    def __post_init__(self) -> None:
        check_fields(self)
        _check(NODE_NONE < self.node_id < NODE_ANY, "node_id", self.node_id, "1 to 4294967294")
