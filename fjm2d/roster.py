"""The gateways that are known by configuration and node list: peers to connect to, and mates of this LAN."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .config import PEERS_MAX
from .keys import PublicKey
from .values import Endpoint, Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A gateway as it is known."""

    public_key: PublicKey
    name: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    lan: str = ""
    rate: Rate | None = None
    """None: as [wan] says."""
    groups: frozenset[str] | None = None
    """Those it carries, as GROUP:PORT; None: not known."""
    is_static: bool = False
    """Whether the configuration names it."""


class Sides(NamedTuple):
    """Who is where."""

    peers: dict[int, Member]
    """Gateways of other LANs, by id."""
    mates: dict[int, Member]
    """Other gateways of this LAN, by id."""
    left_out: int
    """Listed ones that are more than a gateway takes."""


def sides_of(
    own: PublicKey, lan: str, groups: frozenset[str], static: Iterable[Member], listed: Iterable[Member]
) -> Sides:
    """Sort them. What the configuration says of a gateway counts more than what the list says.

    Of a list that is too long every gateway takes the same ones: else some would call who does not know them.
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
