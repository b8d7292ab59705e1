"""Who is there, what an attacker can see of them, and what is fired at the target.

The node ids and addresses that all others share live here, too.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fjm2.norm.core.train import Address

GROUP: Address = ("239.255.0.1", 6003)
HONEST_SENDER, TARGET, HONEST_RECEIVER = 0xA5C39E71, 0xB6D48F62, 0xC7E5A053  # none that a mutation makes by chance


@dataclass(slots=True)
class Sight:
    """What an attacker can see."""

    instance_id: int
    object_id: int = 0
    sender_instance_id: int = 0
    sender_object_id: int = 0
    now: float = 0.0
    seen: deque[bytes] = field(default_factory=lambda: deque(maxlen=200))


class Shot(NamedTuple):
    """What is fired at the target at once."""

    data: bytes
    address: Address
    segment_bytes: int = 0
    """Of a train; 0 for a single datagram."""
    by_unicast: bool = False
