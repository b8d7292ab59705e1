"""Node ids, the group's address, an attacker's view of the nodes, and the shots fired at the target."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fjm2.norm.core.train import Address

GROUP: Address = ("239.255.0.1", 6003)
HONEST_SENDER, TARGET, HONEST_RECEIVER = 0xA5C39E71, 0xB6D48F62, 0xC7E5A053  # unlikely to result from a mutation


@dataclass(slots=True)
class Sight:
    """Everything that an attacker can observe."""

    instance_id: int
    object_id: int = 0
    sender_instance_id: int = 0
    sender_object_id: int = 0
    now: float = 0.0
    seen: deque[bytes] = field(default_factory=lambda: deque(maxlen=200))


class Shot(NamedTuple):
    """A datagram or a train that is fired at the target."""

    data: bytes
    address: Address
    segment_bytes: int = 0
    """Length of the train's segments, or 0 for a single datagram."""
    by_unicast: bool = False
