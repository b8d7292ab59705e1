"""Claims to the name of a known sender: messages of another incarnation, or from another address.

NORM does not authenticate, so one datagram proves nothing. A claimant is believed once it has sent several while the
known sender was silent. Its first messages are kept until then, so that a sender that really restarted loses nothing.
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
_CLAIM_S = 2.0
"""A claim that was not proven by then is refused. A sender that restarted sends at once."""
_CLAIMS_MAX = 32
"""Maximum number of claims at a time: anyone can make them."""
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
        if self.datagrams < self.datagrams_needed:
            return NEVER
        return max(self.began_at + PROOF_S, heard_at + self.silence_s)

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

    __slots__ = ("_by_claimant", "_refuse")

    def __init__(self, refuse: Callable[[Claim, float], None]) -> None:
        """Call `refuse` with each claim that is not believed, and the time."""
        self._by_claimant: OrderedDict[tuple[int, int, Address], Claim] = OrderedDict()
        self._refuse = refuse

    def note(
        self, remote: RemoteSender, message: FromSender, part: Part, address: Address, now: float, is_elder: bool
    ) -> Claim | None:
        """Note a message in the name of a known sender. Return its claim if it is believed now."""
        key = message.source_id, message.instance_id, address
        claim = self._by_claimant.get(key)
        if claim is not None and claim.is_refuted(remote.heard_at):
            self._refuse(self._by_claimant.pop(key), now)
            claim = None
        if claim is None:
            if len(self._by_claimant) >= _CLAIMS_MAX:
                self._refuse(self._by_claimant.popitem(last=False)[1], now)
            silence_s = SAME_ADDRESS_SILENCE_S if address == remote.address else OTHER_ADDRESS_SILENCE_S
            claim = self._by_claimant[key] = Claim(
                *key, now, -NEVER if is_elder else silence_s, ELDER_DATAGRAMS if is_elder else PROOF_DATAGRAMS
            )
        claim.keep(part)
        claim.heard_at = now
        if claim.believed_at(remote.heard_at) > now:
            return None
        return self._by_claimant.pop(key)

    def take_due(self, remote_of: Callable[[int], RemoteSender | None], now: float) -> list[Claim]:
        """Refuse the claims that are refuted or too old. Take out and return those that are believed now."""
        believed: list[Claim] = []
        for key, claim in list(self._by_claimant.items()):
            remote = remote_of(claim.node_id)
            heard_at = -NEVER if remote is None else remote.heard_at
            if claim.is_refuted(heard_at) or now >= claim.began_at + _CLAIM_S:
                self._refuse(self._by_claimant.pop(key), now)
            elif claim.believed_at(heard_at) <= now:
                believed.append(self._by_claimant.pop(key))
        return believed

    def next_at(self, remote_of: Callable[[int], RemoteSender | None]) -> float:
        """Return when a claim may be believed, or is too old."""
        times = [NEVER]
        for claim in self._by_claimant.values():
            remote = remote_of(claim.node_id)
            heard_at = -NEVER if remote is None else remote.heard_at
            times.append(min(claim.believed_at(heard_at), claim.began_at + _CLAIM_S))
        return min(times)

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
