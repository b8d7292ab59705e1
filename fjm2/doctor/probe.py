"""Probes between two hosts: their format, and the decision what to answer. No I/O.

A probe, big-endian: "FJM2 probe" · u8 kind · u8 flags · 8 bytes session · 8 bytes cookie · u32 number · u32 listener id
· u64 time of the prober, returned unchanged · u64 clock of the listener, in ns since 1970 · u32 and u32: pings of the
session that the listener received by multicast, and by unicast · u16 unicast port of the listener · zeros up to any
size.

HELLO asks for listeners and is answered by a CHALLENGE with a cookie, which reaches only the address that asked. A PING
with this cookie is answered by a PONG. No answer is larger than its question, and answers are limited by second and by
session.
"""

import hashlib
import hmac
import secrets
import struct
from collections import OrderedDict
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from typing import Final, Self

from fjm2.base.token_bucket import TokenBucket

from .observations import PROBE_MAGIC

_HEAD = struct.Struct("!10sBB8s8sIIQQIIH")
PROBE_BYTES_MIN: Final = _HEAD.size
_HELLOS_PER_S: Final = 10  # a prober needs one answer; limits what forged questions can cause
_PINGS_PER_S: Final = 1000  # a prober sends 250
_SESSIONS_MAX: Final = 64  # bounds memory; the oldest is forgotten
_SESSION_PINGS_MAX: Final = 20_000  # enough for `--watch` of 50 minutes, at six pings a second


class Kind(IntEnum):
    HELLO = 1
    CHALLENGE = 2
    PING = 3
    PONG = 4
    BEACON = 5
    """Announcement of a listener, sent every second."""


class Way(IntFlag):
    """Manner in which a probe asks to be answered."""

    MULTICAST = 1
    SHORT = 2
    """The answer has the header only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One datagram of the doctor."""

    kind: Kind
    way: int = 0
    session: bytes = bytes(8)
    cookie: bytes = bytes(8)
    number: int = 0
    listener: int = 0
    sent_at_ns: int = 0
    clock_ns: int = 0
    by_multicast: int = 0
    by_unicast: int = 0
    unicast_port: int = 0
    """Unicast port of the listener."""

    def encode(self, size: int = 0) -> bytes:
        head = _HEAD.pack(
            PROBE_MAGIC,
            self.kind,
            self.way,
            self.session,
            self.cookie,
            self.number,
            self.listener,
            self.sent_at_ns,
            self.clock_ns,
            self.by_multicast,
            self.by_unicast,
            self.unicast_port,
        )
        return head.ljust(size, b"\0")

    @classmethod
    def decode(cls, datagram: bytes) -> Self | None:
        """Return the probe, or None if the datagram is not a probe."""
        if len(datagram) < _HEAD.size:
            return None
        magic, kind, way, session, cookie, *rest = _HEAD.unpack_from(datagram)
        if magic != PROBE_MAGIC or kind not in set(Kind):
            return None
        number, listener, sent_at_ns, clock_ns, by_multicast, by_unicast, unicast_port = rest
        return cls(
            kind=Kind(kind),
            way=way,
            session=session,
            cookie=cookie,
            number=number,
            listener=listener,
            sent_at_ns=sent_at_ns,
            clock_ns=clock_ns,
            by_multicast=by_multicast,
            by_unicast=by_unicast,
            unicast_port=unicast_port,
        )


class Allowance(TokenBucket):
    """A limit of messages per second. The messages of one second may come in a burst."""

    __slots__ = ()

    def __init__(self, per_s: float) -> None:
        super().__init__(per_s, credit=per_s)

    def take(self, now: float) -> bool:
        """Return True, and count one message, if it may be sent now."""
        if self.refill(now, self.per_s) < 1:
            return False
        self.spend(1)
        return True


@dataclass(slots=True)
class _Session:
    by_multicast: int = 0
    by_unicast: int = 0


class Answerer:
    """The listener's side: decides what to answer to each probe."""

    def __init__(self, unicast_port: int) -> None:
        self.listener = secrets.randbelow(1 << 32)
        self.answered = 0
        self.refused = 0
        """Number of probes refused, because they had no valid cookie or were beyond the limits."""
        self._unicast_port = unicast_port
        self._secret = secrets.token_bytes(32)
        self._hellos, self._pings = Allowance(_HELLOS_PER_S), Allowance(_PINGS_PER_S)
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def beacon(self) -> bytes:
        return Probe(kind=Kind.BEACON, listener=self.listener, unicast_port=self._unicast_port).encode()

    def answer(self, datagram: bytes, host: str, is_multicast: bool, clock_ns: int, now: float) -> bytes | None:
        """Return the answer to a probe from a host; None for no answer."""
        probe = Probe.decode(datagram)
        if probe is None or probe.kind not in (Kind.HELLO, Kind.PING):
            return None
        cookie = self._cookie(host, probe.session)
        reply = replace(
            probe, listener=self.listener, clock_ns=clock_ns, unicast_port=self._unicast_port, cookie=cookie
        )
        if probe.kind is Kind.HELLO:
            return self._counted(replace(reply, kind=Kind.CHALLENGE), 0, self._hellos.take(now))
        if probe.listener != self.listener:
            return None
        if not hmac.compare_digest(probe.cookie, cookie) or not self._pings.take(now):
            return self._counted(reply, 0, False)
        session = self._session(probe.session)
        session.by_multicast += is_multicast
        session.by_unicast += not is_multicast
        pong = replace(reply, kind=Kind.PONG, by_multicast=session.by_multicast, by_unicast=session.by_unicast)
        is_allowed = session.by_multicast + session.by_unicast <= _SESSION_PINGS_MAX
        return self._counted(pong, 0 if probe.way & Way.SHORT else len(datagram), is_allowed)

    def _counted(self, reply: Probe, size: int, is_allowed: bool) -> bytes | None:
        self.answered += is_allowed
        self.refused += not is_allowed
        return reply.encode(size) if is_allowed else None

    def _cookie(self, host: str, session: bytes) -> bytes:
        return hashlib.blake2b(session + host.encode(), digest_size=8, key=self._secret).digest()

    def _session(self, name: bytes) -> _Session:
        """Return the counters of a session. Beyond the limit, the oldest session is forgotten."""
        found = self._sessions.pop(name, None) or _Session()
        self._sessions[name] = found
        if len(self._sessions) > _SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return found
