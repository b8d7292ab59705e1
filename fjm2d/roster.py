"""Division of the other gateways, from configuration and node list, into peers to connect to and mates on this LAN."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .config import PEERS_MAX
from .keys import PublicKey
from .values import Endpoint, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A gateway, as the configuration or the node list describes it."""

    public_key: PublicKey
    name: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    lan: str = ""
    rate: Rate | None = None
    """Rate of the link; None: the rate in the table `[wan]`."""
    groups: frozenset[str] | None = None
    """Groups that the gateway carries, as GROUP:PORT; None: unknown."""
    is_static: bool = False
    """True if the configuration names the gateway."""


class Sides(NamedTuple):
    """The other gateways, divided into peers and mates."""

    peers: dict[int, Member]
    """Gateways of other LANs, by id."""
    mates: dict[int, Member]
    """Other gateways of this LAN, by id."""
    left_out: int
    """Number of listed gateways beyond `PEERS_MAX`."""


def sides_of(
    own: PublicKey, lan: str, groups: frozenset[str], static: Iterable[Member], listed: Iterable[Member]
) -> Sides:
    """Divide the other gateways into peers and mates. `static` overrides `listed` where both describe a gateway.

    If the list is too long, every gateway chooses the same entries, so that none calls a gateway that ignores it.
    """
    members: dict[int, Member] = {}
    for member in (*static, *sorted(listed, key=lambda one: one.public_key.id)):
        members.setdefault(member.public_key.id, member)
    members.pop(own.id, None)
    peers: dict[int, Member] = {}
    mates: dict[int, Member] = {}
    left_out = 0
    for identity, member in members.items():
        if lan and member.lan == lan:
            mates[identity] = member
        elif member.groups is not None and not member.groups & groups:
            continue
        elif len(peers) < PEERS_MAX or member.is_static:
            peers[identity] = member
        else:
            left_out += 1
    return Sides(peers, mates, left_out)
