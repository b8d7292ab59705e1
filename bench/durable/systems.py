"""The systems with durable topics, by name."""

from .activemq import ActiveMqDurable
from .fjm2_cell import Fjm2Cell
from .jetstream import JetStream
from .roles import DurableSystem

_SYSTEMS: tuple[DurableSystem, ...] = (
    Fjm2Cell("fjm2", keepers=3),
    Fjm2Cell("fjm2-one", keepers=1),
    JetStream("jetstream", "\n  sync_interval: always", "which sync before they confirm (sync_interval: always)"),
    JetStream("jetstream-default", "", "which sync every two minutes, by default: a power cut loses what is confirmed"),
    ActiveMqDurable(),
)
SYSTEMS = tuple(system.name for system in _SYSTEMS)


def load(name: str) -> DurableSystem:
    """Return a system. Its `missing` tells if it is installed."""
    return next(system for system in _SYSTEMS if system.name == name)
