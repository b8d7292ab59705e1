"""Feedback to remote senders: NACKs and ACKs are built here, and wait here until they can be sent."""

from collections import deque
from typing import TypedDict

import numpy as np

from fjm2.base.token_bucket import TokenBucket
from fjm2.norm.core.congestion import CcResponder
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.stats import Drop, Stats
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.train import Address, Train
from fjm2.norm.core.wire import Ack, Extension, Message, Nack, Position, RepairRequest, Status, StatusFlag

from .context import ReceiverContext

_WAITING_MAX = 1024
"""Maximum number of messages that wait to be sent. More are dropped: this node requests again, or the sender asks
again."""
_MESSAGE_BYTES = 44
"""Size of the shortest message of a sender, with its UDP and IP headers."""
_ACK_BYTES = 80
"""Size of an acknowledgement without content, with all headers and extensions."""
_UNPROVEN_SHARE = 3
"""How many bytes of acknowledgements may go to a sender that has not proved useful, for each byte that came from it.
Its address may be that of a victim. A bare request can still be answered, as in QUIC (RFC 9000, 8.1)."""
_ACKS_BYTES_PER_S = 1 << 20
"""Most bytes of acknowledgements to one sender in a second. A forged request needs no more than one datagram."""
_ACKS_BURST_BYTES = 1 << 17
"""Bytes of acknowledgements that may go to one sender at once."""


class FeedbackQueue:
    """Queue of NACKs and ACKs to send, shared by all receivers of a node."""

    __slots__ = ("_group", "_stats", "trains")

    def __init__(self, group: Address, stats: Stats) -> None:
        self._group = group
        self._stats = stats
        self.trains: deque[Train] = deque()
        """Queued messages, each as a train of one datagram."""

    def add(self, message: Message, address: Address | None) -> None:
        """Queue a message to an address, or to the group if the address is None."""
        if len(self.trains) >= _WAITING_MAX:
            self._stats.drop(Drop.RATE_LIMITED)
            return
        data = np.frombuffer(message.encode(), np.uint8)
        self._stats.datagrams_sent += 1
        self._stats.bytes_sent += data.size
        self.trains.append(Train(data, data.size, address or self._group))


class FeedbackFields(TypedDict):
    """Header fields that NACK and ACK have in common."""

    source_id: int
    sender_id: int
    instance_id: int
    grtt_response_s: int
    grtt_response_us: int
    extensions: tuple[Extension, ...]


class FeedbackSender:
    """Output of NACKs and ACKs to one remote sender. It sends nothing if the settings make the receiver silent."""

    __slots__ = ("_acked_bytes", "_acks", "_cc", "_context", "_is_unicast", "_remote", "sent_at")

    def __init__(self, context: ReceiverContext, remote: RemoteSender, cc: CcResponder) -> None:
        self._context = context
        self._remote = remote
        self._cc = cc
        self._is_unicast = context.config.unicast_nack or not context.group_is_multicast
        self._acks = TokenBucket(_ACKS_BYTES_PER_S, credit=_ACKS_BURST_BYTES)
        self._acked_bytes = 0
        """Bytes of acknowledgements of the application that were sent."""
        self.sent_at = -NEVER
        """Time when anything was last sent."""

    def nack(self, requests: tuple[RepairRequest, ...], now: float) -> None:
        """Request repairs."""
        if not self._context.is_silent:
            self._context.stats.nacks_sent += 1
            self._send(Nack(**self._fields(now), requests=requests), now)

    def ack(self, ack_type: int, content: bytes | Position, now: float, is_private: bool = False) -> None:
        """Acknowledge a probe or a watermark: to the group, or if `is_private`, to the sender alone."""
        if not self._context.is_silent:
            self._context.stats.acks_sent += 1
            self._send(Ack(**self._fields(now), ack_type=ack_type, content=content), now, is_private)

    def application_ack(self, ack_type: int, ack_id: int, content: bytes, is_proven: bool, now: float) -> bool:
        """Send an acknowledgement of the application to the sender alone. Return False if that would be too much.

        A sender that is not proven gets little: anyone can invent one at the address of a victim.
        """
        size = _ACK_BYTES + len(content)
        heard_bytes = self._remote.data_bytes + self._remote.messages * _MESSAGE_BYTES
        is_echo = is_proven or self._acked_bytes + size <= _UNPROVEN_SHARE * heard_bytes
        if not is_echo or self._acks.refill(now, _ACKS_BURST_BYTES) < size:
            self._context.stats.drop(Drop.RATE_LIMITED)
            return False
        self._acks.spend(size)
        self._acked_bytes += size
        self._context.stats.acks_sent += 1
        ack = Ack(**self._fields(now), ack_type=ack_type, ack_id=ack_id, content=content)
        self._send(ack, now, is_private=True)
        return True

    def _fields(self, now: float) -> FeedbackFields:
        status = Status(flags=StatusFlag.FULL if self._context.is_full else 0, progress=self._remote.progress)
        response_s, response_us = self._remote.grtt_response(now)
        return {
            "source_id": self._context.node_id,
            "sender_id": self._remote.node_id,
            "instance_id": self._remote.instance_id,
            "grtt_response_s": response_s,
            "grtt_response_us": response_us,
            "extensions": (self._cc.feedback(), status) if self._cc.is_reporting else (status,),
        }

    def _send(self, message: Message, now: float, is_private: bool = False) -> None:
        self.sent_at = now
        if self._cc.is_reporting and self._cc.due_at is not None:
            self._cc.answer(now)  # every message to the sender carries the report, and echoes the probe
        self._context.send(message, self._remote.address if self._is_unicast or is_private else None)
