"""Everything that a watch has heard on a bus."""

from collections.abc import Iterable
from typing import Final

from fjm2.jms import Destination
from fjm2.norm import Address

from .answers import Answers
from .connections import Connections
from .gateways import Gateways
from .keepers import Keepers
from .senders import Senders
from .topics import Topics

ADDRESSES_MAX: Final = 8192
"""Greatest number of nodes whose addresses are remembered. It is more than senders and receivers together, and bounds
the memory that forged node ids can take."""


class Observations:
    """Connections, senders, receivers, topics, gateways and keepers of a bus. Memory is bounded, whatever comes."""

    def __init__(self, known: Iterable[Destination]) -> None:
        self.connections = Connections()
        self.senders = Senders()
        self.answers = Answers()
        self.topics = Topics(known)
        self.gateways = Gateways()
        self.keepers = Keepers()
        self.addresses: dict[int, Address] = {}
        """Source address of the latest datagram of each node, by node id."""

    def note_address(self, node_id: int, address: Address) -> None:
        if node_id in self.addresses or len(self.addresses) < ADDRESSES_MAX:
            self.addresses[node_id] = address

    def expire(self, now: float) -> None:
        """Forget connections, publishers, senders and receivers that have been silent for too long."""
        self.topics.forget_publishers(self.connections.expire(now), now)
        members = self.connections.member_nodes()
        self.answers.forget(members, now)
        self.senders.forget_silent(members, now)
        nodes = members | self.senders.node_ids() | {one.node_id for one in self.answers.receivers}
        self.addresses = {node: address for node, address in self.addresses.items() if node in nodes}
        self.connections.keep_former_labels(nodes)
