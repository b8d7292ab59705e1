"""Claims to the name of a known sender: messages of another incarnation, or from another address.

NORM does not authenticate, so one datagram proves nothing. A claimant is believed once it has sent several while the
known sender was silent. Its first messages are kept until then, so that a sender that really restarted loses nothing.
A claim ends when the known sender speaks, which contradicts it. Only then is it reported: a claim that merely grew too
old may be that of a sender that moved and then fell silent.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from fjm2.norm.core.events import Doubt, Event, SenderImpersonated
from fjm2.norm.core.remote_sender import RemoteSender
from fjm2.norm.core.timers import NEVER
from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import DataRun, FromSender

from .incoming_stream import Resumption

PROOF_DATAGRAMS = 3
"""Datagrams that a claimant must send before it is believed."""
PROOF_S = 0.02
"""Time for which the known sender can contradict a claim, at least."""
SAME_ADDRESS_SILENCE_S = 0.05
"""Silence of the known sender after which its own address is believed to have restarted: network delays are shorter."""
OTHER_ADDRESS_SILENCE_S = 0.5
"""Silence of the known sender after which another address is believed."""
ELDER_DATAGRAMS = 2
"""Datagrams that an earlier incarnation must send to get its name back, even from one that still sends."""
LATE_S = 0.05
"""Messages that come this soon after a sender left, or was replaced, were still on their way."""
DEPARTED_S = 60.0
"""Time for which a sender that left or was replaced is remembered: idle ones speak at least this often."""
_CLAIM_S = DEPARTED_S
"""Silence of the claimant after which an unproven claim is dropped. An idle sender that moved speaks rarely: a
connection with nothing to send announces itself once in about five seconds, and less often among many."""
IDLE_SILENCE_S = 8.0
"""Silence of the known sender after which a claimant that is idle itself is believed: a connection with nothing to send
is silent for six seconds at most, and remembered for fifteen."""
IDLE_SPAN_S = 2.0
"""Time between the first and the last datagram of a claimant that is idle: two of them then prove as much as
`PROOF_DATAGRAMS` in a row. A network that delivers one datagram twice does so within this time."""
_REVIEW_S = 1.0
"""Longest time until a contradiction of a claim is noticed."""
_REVIEW_INTERVAL_S = 0.01
"""Shortest time between two reviews of all claims, which look at each."""
_CLAIMS_MAX = 1024
"""Maximum number of claims at a time: anyone can make them, and all nodes behind a gateway that restarts make one."""
_ALL_KEPT_BYTES_MAX = 8 << 20
"""Maximum number of bytes kept for all claims together."""
_KEPT_BYTES_MAX = 1 << 18
"""Maximum number of bytes kept for one claim: those that a sender sends first. It repeats the others when asked."""
_KEPT_PARTS_MAX = 64
"""Maximum number of messages and runs kept for one claim."""
_PART_BYTES = 256
"""Memory charged for a kept message besides its content."""
_NODE_BYTES = 40
"""Memory charged for each node that a kept message names: an int, and its place in a tuple."""
_DISPUTE_INTERVAL_S = 5.0
"""Shortest time between two reports about one sender: each forged datagram would be one."""
_DISPUTES_MAX = 1024
"""Senders of which the last report is remembered."""

Part: TypeAlias = DataRun | FromSender
"""A message, or a run of DATA."""


@dataclass(frozen=True, slots=True)
class Departed:
    """An incarnation of a sender that left, or that another one replaced."""

    address: Address
    began_at: float
    """Time when it was first heard."""
    left_at: float
    doubt: Doubt
    """Reason to doubt that it is gone, if it is heard again."""
    resume_at: dict[int, Resumption]
    """Where its open streams go on, by object id."""


@dataclass(slots=True)
class Claim:
    """Messages of one claimant, which may be the sender after all."""

    node_id: int
    instance_id: int
    address: Address
    began_at: float
    silence_s: float
    """Silence of the known sender that proves the claim; negative infinity if its messages do not matter."""
    datagrams_needed: int
    heard_at: float = -NEVER
    """Time of the last message."""
    datagrams: int = 0
    kept_bytes: int = 0
    parts: list[Part] = field(default_factory=list)

    def keep(self, part: Part) -> None:
        """Count a message or run, and keep it if it is the first, or there is room."""
        if isinstance(part, DataRun):
            self.datagrams += part.count
            size = part.headers.nbytes + part.payloads.size + part.tail.size
        else:
            self.datagrams += 1
            size = len(getattr(part, "content", b"")) + _NODE_BYTES * len(getattr(part, "acking_nodes", ()))
        size += _PART_BYTES
        has_room = self.kept_bytes + size <= _KEPT_BYTES_MAX and len(self.parts) < _KEPT_PARTS_MAX
        if has_room or not self.parts:
            self.kept_bytes += size
            self.parts.append(_copy(part))

    def believed_at(self, heard_at: float) -> float:
        """Return when the claim is believed, if the sender that was heard at `heard_at` remains silent."""
        if self.datagrams >= self.datagrams_needed:
            return max(self.began_at + PROOF_S, heard_at + self.silence_s)
        return heard_at + IDLE_SILENCE_S if self.heard_at - self.began_at >= IDLE_SPAN_S else NEVER

    def is_refuted(self, heard_at: float) -> bool:
        """Return True if the known sender has spoken since the claim was made, and was not only late."""
        return heard_at > self.began_at + LATE_S and self.silence_s >= 0.0


def _copy(part: Part) -> Part:
    """Copy a run out of its train, which is borrowed."""
    if not isinstance(part, DataRun):
        return part
    return DataRun(part.header, part.headers.copy(), part.payloads.copy(), part.tail.copy())


class Claims:
    """The claims that are neither believed nor refused yet."""

    __slots__ = ("_by_claimant", "_kept_bytes", "_refuse", "_reviewed_at", "due_at")

    def __init__(self, refuse: Callable[[Claim, float], None]) -> None:
        """Call `refuse` with each claim that is not believed, and the time."""
        self._by_claimant: OrderedDict[tuple[int, int, Address], Claim] = OrderedDict()
        """The claims, in order of the claimants' silence, the longest first."""
        self._refuse = refuse
        self._kept_bytes = 0
        self._reviewed_at = -NEVER
        self.due_at = NEVER
        """Time before which no claim has to be reviewed."""

    def note(
        self, remote: RemoteSender, message: FromSender, part: Part, address: Address, now: float, is_elder: bool
    ) -> Claim | None:
        """Note a message in the name of a known sender. Return its claim if it is believed now."""
        key = message.source_id, message.instance_id, address
        claim = self._by_claimant.get(key)
        if claim is not None and claim.is_refuted(remote.heard_at):
            self._refuse(self._pop(key), now)
            claim = None
        if claim is None:
            silence_s = SAME_ADDRESS_SILENCE_S if address == remote.address else OTHER_ADDRESS_SILENCE_S
            claim = self._by_claimant[key] = Claim(
                *key, now, -NEVER if is_elder else silence_s, ELDER_DATAGRAMS if is_elder else PROOF_DATAGRAMS
            )
        self._by_claimant.move_to_end(key)
        self._kept_bytes -= claim.kept_bytes
        claim.keep(part)
        self._kept_bytes += claim.kept_bytes
        claim.heard_at = now
        while len(self._by_claimant) > _CLAIMS_MAX or (
            self._kept_bytes > _ALL_KEPT_BYTES_MAX and len(self._by_claimant) > 1
        ):
            self._refuse(self._pop(next(iter(self._by_claimant))), now)
        believed_at = claim.believed_at(remote.heard_at)
        if believed_at <= now:
            return self._pop(key)
        self._review_by(min(believed_at, now + _REVIEW_S))
        return None

    def take_due(self, remote_of: Callable[[int], RemoteSender | None], now: float) -> list[Claim]:
        """Refuse the claims that are refuted or too old. Take out and return those that are believed now."""
        if now < self.due_at:
            return []
        believed: list[Claim] = []
        self._reviewed_at, self.due_at = now, NEVER
        for key, claim in list(self._by_claimant.items()):
            remote = remote_of(claim.node_id)
            heard_at = -NEVER if remote is None else remote.heard_at
            if claim.is_refuted(heard_at) or now >= claim.heard_at + _CLAIM_S:
                self._refuse(self._pop(key), now)
            elif (believed_at := claim.believed_at(heard_at)) <= now:
                believed.append(self._pop(key))
            else:
                self._review_by(min(believed_at, now + _REVIEW_S))
        return believed

    def _review_by(self, at: float) -> None:
        self.due_at = min(self.due_at, max(at, self._reviewed_at + _REVIEW_INTERVAL_S))

    def _pop(self, key: tuple[int, int, Address]) -> Claim:
        claim = self._by_claimant.pop(key)
        self._kept_bytes -= claim.kept_bytes
        return claim

    def __bool__(self) -> bool:
        return bool(self._by_claimant)


class Disputes:
    """Reports messages that were refused because a sender's own contradict them. Reports about one sender are few."""

    __slots__ = ("_emit", "_reported_at")

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._reported_at: OrderedDict[int, float] = OrderedDict()
        """Time of the last report about each sender, oldest first."""

    def report(self, sender_id: int, address: Address, doubt: Doubt, now: float) -> None:
        """Report false messages in a sender's name that came from an address."""
        if now - self._reported_at.get(sender_id, -NEVER) < _DISPUTE_INTERVAL_S:
            return
        self._reported_at.pop(sender_id, None)
        self._reported_at[sender_id] = now
        if len(self._reported_at) > _DISPUTES_MAX:
            self._reported_at.popitem(last=False)
        self._emit(SenderImpersonated(sender_id, address, doubt))
