"""Errors of calls and sends that need keepers, and what is known of these: that none is there, or that none serves."""

from typing import TYPE_CHECKING

from fjm2.base.quantities import counted, node_text
from fjm2.bus.losses.names import listed
from fjm2.messages.errors import JMSError, ResourceAllocationError

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus
    from fjm2.bus.config import BusConfig


def place_of(config: "BusConfig") -> str:
    """Return the name of a bus for people."""
    return f"fjm2://{config.group}:{config.port}"


def no_keeper(subject: str, bus: "Bus") -> JMSError:
    """Return the error of a call that needs keepers, if none was heard, or none that serves."""
    place = place_of(bus.config)
    names = _names(bus)
    if not names:
        return ResourceAllocationError(f"{subject}: no keeper on {place}; start one: fjm2 keep DIRECTORY", "no_keeper")
    return ResourceAllocationError(
        f"{subject}: no keeper serves on {place} yet; {_known(names)}: wait for `fjm2 keep status --wait 30s`, then "
        "call again",
        "no_keeper",
    )


def not_serving(bus: "Bus", waited_s: float) -> JMSError:
    """Return the error of a message that waited for keepers, and was not sent."""
    names = _names(bus)
    return ResourceAllocationError(
        f"no keeper on {place_of(bus.config)} has served for {waited_s:g} s (confirm_timeout_s); "
        f"{_known(names) if names else 'those that were there have gone'}: the message was not sent; look at them with "
        "`fjm2 keep status`, then send it again",
        "no_keeper",
    )


def _known(names: list[str]) -> str:
    return f"{counted(len(names), 'keeper')} {'is' if len(names) == 1 else 'are'} there ({listed(names)})"


def _names(bus: "Bus") -> list[str]:
    """Return the names of the known keepers, as they may be printed on a terminal."""
    peers = bus.presence.keepers
    return sorted(ascii(peer.client_id or f"node {node_text(peer.node_id)}")[1:-1] for peer in peers)
