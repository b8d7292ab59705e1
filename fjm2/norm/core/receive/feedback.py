"""Feedback to remote senders: NACKs and ACKs are built here, and wait here until they can be sent."""

from collections import deque
from typing import TypedDict

import numpy as np

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

    __slots__ = ("_cc", "_context", "_is_unicast", "_remote", "sent_at")

    def __init__(self, context: ReceiverContext, remote: RemoteSender, cc: CcResponder) -> None:
        self._context = context
        self._remote = remote
        self._cc = cc
        self._is_unicast = context.config.unicast_nack or not context.group_is_multicast
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

    def application_ack(self, ack_type: int, ack_id: int, content: bytes, now: float) -> None:
        """Send an acknowledgement of the application to the sender alone."""
        self._context.stats.acks_sent += 1
        ack = Ack(**self._fields(now), ack_type=ack_type, ack_id=ack_id, content=content)
        self._send(ack, now, is_private=True)

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
