"""Settings of a session, checked once, at construction."""

import os
from dataclasses import dataclass, field
from enum import Enum

from fjm2.base.errors import ConfigError

from .wire import NODE_ANY, NODE_NONE, FecId


class Fec(Enum):
    """What protects a sender's data besides repair."""

    NONE = "none"
    """FEC Encoding ID 5 without parity: the form without a code that libnorm takes."""
    RS = "rs"
    """Reed-Solomon over GF(2^8), FEC Encoding ID 5."""
    NOCODE = "nocode"
    """Compact no-code, FEC Encoding ID 0. libnorm does not take it."""

    @property
    def fec_id(self) -> FecId:
        """The FEC Encoding ID on the wire."""
        return FecId.COMPACT_NO_CODE if self is Fec.NOCODE else FecId.REED_SOLOMON_8


class Flow(Enum):
    """Whom a sender waits for before it goes more than a window ahead."""

    MIN = "min"
    """The slowest of all receivers that answer it."""
    NAMED = "named"
    """The slowest of those that the application names."""
    MAX = "max"
    """Nobody: who can't keep up loses data, and is told so."""


class Sync(Enum):
    """Where reception of a sender's objects begins."""

    CURRENT = "current"
    """With the first object whose beginning is heard; in a stream, with the first segment heard."""
    STREAM = "stream"
    """Likewise, but a stream is asked for from its beginning, where that is still held."""
    ALL = "all"
    """With all objects of the window before the first one heard."""


def _check(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise ConfigError(f"{name}={value}: expected {expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderConfig:
    """How a node sends."""

    segment_bytes: int = 1400
    """Payload of one datagram, all headers excluded. Larger means fewer headers, and more lost at once."""
    block_segments: int = 64
    """Source segments of a block. A larger one makes parity stronger and decoding slower."""
    fec: Fec = Fec.NONE
    """What protects the data besides repair."""
    parity_segments: int = 0
    """Parity symbols that a block can have, with `fec=rs`."""
    auto_parity: int = 0
    """Parity symbols sent with every block unasked."""
    rate_bps: float | None = 100e6
    """Bits per second of NORM messages; None for no limit."""
    flow: Flow = Flow.MAX
    """Whom to wait for: the slowest receiver that answers (min), the slowest of those named (named), nobody (max)."""
    window_bytes: int = 32 << 20
    """How far to be ahead, at the most, of the slowest receiver that is waited for."""
    ack_timeout_s: float = 5.0
    """A receiver that is waited for and says nothing for so long is waited for no more."""
    cc: bool = False
    """Congestion control by RFC 5740 (TFMCC); the rate then only bounds it from above."""
    grtt_s: float = 0.01
    """First estimate of the group's round-trip time, until receivers have answered a probe."""
    grtt_min_s: float = 0.001
    """The estimate goes no lower, however quick answers are."""
    grtt_max_s: float = 10.0
    """The estimate goes no higher, whatever receivers claim."""
    backoff_factor: int = 4
    """K: receivers wait up to so many GRTTs before a NACK, so that one may speak for all."""
    group_size: int = 1000
    """How many receivers to expect. NACK suppression is tuned by it; a guess of the right order will do."""
    robust_factor: int = 20
    """How often a FLUSH, a watermark request or a robust command is repeated."""
    cache_objects: int = 256
    """Most objects held for repair, those being sent included."""
    cache_bytes: int = 256 << 20
    """Most bytes of objects in memory held for repair; files do not count."""
    stream_bytes: int = 16 << 20
    """Buffer of a stream: what can be repaired and what waits to be sent."""

    def __post_init__(self) -> None:
        is_rs = self.fec is Fec.RS
        _check(64 <= self.segment_bytes <= 65_000, "segment_bytes", self.segment_bytes, "64 to 65000")
        _check(1 <= self.block_segments <= 255, "block_segments", self.block_segments, "1 to 255")
        most = 255 - self.block_segments if is_rs else 0
        expected = f"0 to {most} (255 - block_segments)" if is_rs else f"0 with fec={self.fec.value}"
        _check(0 <= self.parity_segments <= most, "parity_segments", self.parity_segments, expected)
        auto = f"0 to parity_segments ({self.parity_segments})"
        _check(0 <= self.auto_parity <= self.parity_segments, "auto_parity", self.auto_parity, auto)
        rate = self.rate_bps
        _check(rate is None or 1_000 <= rate <= 1e12, "rate_bps", rate, "1e3 to 1e12, or None")
        _check(self.window_bytes >= 2 * self.segment_bytes, "window_bytes", self.window_bytes, "two segments or more")
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

    @property
    def stream_blocks(self) -> int:
        """Blocks that a stream's buffer holds: as many as fit, but enough to send on while others are repaired."""
        blocks = self.stream_bytes // (self.segment_bytes * self.block_segments)
        block_bits = 16 if self.fec is Fec.NOCODE else 24
        return min(max(blocks, 4), 1 << (block_bits - 2))  # well within what a block number can tell apart


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverConfig:
    """How a node receives from every remote sender."""

    sync: Sync = Sync.STREAM
    """Where reception of a sender's objects begins."""
    unicast_nack: bool = False
    """Ask the sender alone for repairs instead of the group; it then tells the group."""
    silent: bool = False
    """Send nothing at all: neither NACK nor ACK."""
    file_directory: str | None = None
    """Where files are written while they arrive; without it they are kept in memory."""
    object_bytes_max: int = 1 << 30
    """Larger objects are refused, files on disk excepted; so are those larger than `total_bytes_max`."""
    file_bytes_max: int = 1 << 40
    """Larger files are refused."""
    stream_bytes_max: int = 32 << 20
    """Most that is kept of a stream while earlier parts are missing; a sender with a smaller buffer gets less."""
    total_bytes_max: int = 2 << 30
    """Memory that the objects of all senders together may take."""
    objects_max: int = 256
    """Objects of one sender that may be open at once, counted from the oldest that is not complete."""
    senders_max: int = 1024
    """Remote senders known at once. A new one gets the place of the longest silent that never sent anything useful, or
    else of one that has been silent for a quarter of `inactivity_s`."""
    inactivity_s: float = 100.0
    """A sender not heard of for so long is forgotten; what it owed is reported lost. libnorm may be silent for 30 s."""

    def __post_init__(self) -> None:
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
    """One node of a NORM session."""

    node_id: int
    """1 to 0xfffffffe, unlike any other in the group."""
    sender: SenderConfig = field(default_factory=SenderConfig)
    """How it sends."""
    receiver: ReceiverConfig | None = field(default_factory=ReceiverConfig)
    """None for a node that only sends: what others send costs it nothing then."""

    def __post_init__(self) -> None:
        _check(NODE_NONE < self.node_id < NODE_ANY, "node_id", self.node_id, "1 to 4294967294")
