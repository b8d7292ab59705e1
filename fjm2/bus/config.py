"""Conversion of bus URIs, `fjm2://GROUP:PORT?interface=IF&NAME=VALUE&...`, to settings and back.

The names in the query are the fields of BusConfig, SenderConfig and ReceiverConfig, which define types and bounds.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Self, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote

from fjm2.base.errors import ConfigError
from fjm2.norm import ReceiverConfig, SenderConfig, Session, UdpConfig

__all__ = ["DEFAULT_GROUP", "DEFAULT_PORT", "BusConfig"]

DEFAULT_GROUP = "239.192.57.40"
"""Multicast group of a bus whose URI names no group."""
DEFAULT_PORT = 5740
"""UDP port of a bus whose URI names no port: the number of NORM's RFC."""

_FORM = "fjm2://GROUP:PORT?interface=IF&NAME=VALUE&..."
_URI = re.compile(
    r"fjm2://(?:\[(?P<ipv6>[^\]/?#]*)\]|(?P<host>[^\[\]:/?#]*))(?::(?P<port>[0-9]+))?/?(?:\?(?P<query>[^#]*))?"
)
_AMOUNT = re.compile(r"([0-9]+\.?[0-9]*(?:e[+-]?[0-9]+)?)\s*([a-z]*)", re.IGNORECASE)

_SHORT = {"rate": "rate_bps"}
"""Full names of settings by their short names. `rate=0` means no limit, because a rate of 0 would send nothing."""

_PREFIXES = {"k": 1, "m": 2, "g": 3, "t": 4}
_BITS = {"": 1.0, "bit": 1.0, "bps": 1.0} | {
    prefix + unit: 1000.0**power for prefix, power in _PREFIXES.items() for unit in ("", "bit", "bps")
}
_BYTES = {"": 1.0, "b": 1.0} | {
    prefix + unit: base**power
    for prefix, power in _PREFIXES.items()
    for unit, base in (("", 1024.0), ("ib", 1024.0), ("b", 1000.0))
}
_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_SWITCH = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}


class _UnfitError(Exception):
    """A value of a setting cannot be read. The text of the exception says what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusConfig:
    """Address of a bus, and settings for sending and receiving on it."""

    group: str = DEFAULT_GROUP
    """Multicast group, or the address of a single peer. An IPv6 group may have a scope ("ff12::1%eth0")."""
    port: int = DEFAULT_PORT
    """UDP port of the group."""
    interface: str | None = None
    """Name or address of the network interface. None leaves the choice to the kernel's route to the group."""
    ttl: int = 1
    """Number of hops that multicast datagrams may take: 0 keeps them on this host, 1 in this network."""
    dscp: int = 0
    """Traffic class for routers and switches (RFC 4594)."""
    loopback: bool = True
    """True if programs on this host receive what is sent. With False, a busy sender does not receive its own
    datagrams."""
    sender: SenderConfig = field(default_factory=SenderConfig)
    """Settings for sending."""
    receiver: ReceiverConfig = field(default_factory=ReceiverConfig)
    """Settings for receiving."""

    def __post_init__(self) -> None:
        # UdpConfig checks the bounds. A scope can only be checked on the host that it is meant for.
        UdpConfig(group=self.group, port=self.port, interface=self.interface, ttl=self.ttl, dscp=self.dscp)

    @classmethod
    def from_uri(cls, text: str, defaults: Self | None = None) -> Self:
        """Return the settings of a URI. Raise ConfigError with the name, the value, and what was expected.

        Settings that the URI does not name come from `defaults`. Without `defaults`, the fields' own defaults apply.
        """
        match = _URI.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"uri={text!r}: expected {_FORM}, with IPv6 groups in brackets")
        place: dict[str, Any] = {}
        if match["ipv6"] is not None:
            place["group"] = _without_zone_escape(match["ipv6"])
        elif match["host"]:
            place["group"] = unquote(match["host"])
        if match["port"]:
            place["port"] = int(match["port"])
        own, sender, receiver = _sorted_by_owner(_query(match["query"] or ""))
        base = cls() if defaults is None else defaults
        return replace(
            base,
            **place,
            **own,
            sender=replace(base.sender, **sender),
            receiver=replace(base.receiver, **receiver),
        )

    def session(self, *, node_id: int | None = None, is_sender_only: bool = False, dscp: int | None = None) -> Session:
        """Return a NORM session on this bus, not opened yet, for sending and receiving objects and streams."""
        return Session(
            self.group,
            self.port,
            interface=self.interface,
            node_id=node_id,
            sender=self.sender,
            receiver=self.receiver,
            is_sender_only=is_sender_only,
            ttl=self.ttl,
            dscp=self.dscp if dscp is None else dscp,
            loopback=self.loopback,
        )

    def to_uri(self) -> str:
        """Return the URI of these settings, without those that have their default value."""
        host = f"[{self.group.replace('%', '%25')}]" if ":" in self.group else self.group
        pairs = []
        for owner, names in ((self, _OWN), (self.sender, _SENDER), (self.receiver, _RECEIVER)):
            for name in names:
                value = getattr(owner, name)
                if value != _DEFAULTS[type(owner)][name]:
                    pairs.append(f"{_LONG_TO_SHORT.get(name, name)}={quote(_text(value), safe='')}")
        query = f"?{'&'.join(pairs)}" if pairs else ""
        return f"fjm2://{host}:{self.port}{query}"


def _without_zone_escape(host: str) -> str:
    """Return an IPv6 host with its scope written as `%eth0`. RFC 6874 writes `%25eth0` in URIs, but people write
    `%eth0`."""
    address, percent, scope = host.partition("%")
    return f"{address}%{unquote(scope.removeprefix('25'))}" if percent else address


def _query(text: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in filter(None, text.split("&")):
        name, equals, value = part.partition("=")
        name, value = unquote(name), unquote(value)
        full = _SHORT.get(name, name)
        if full not in _READERS:
            known = sorted([*_READERS, *_SHORT])
            meant = "".join(f" (did you mean {one}?)" for one in get_close_matches(name, known, 1))
            raise ConfigError(f"{name}={value}: unknown{meant}, expected one of {', '.join(known)}")
        if not equals:
            raise ConfigError(f"{name}: expected {name}=VALUE")
        if full in pairs:
            raise ConfigError(f"{name}={value}: given twice, expected once")
        pairs[full] = "none" if name in _SHORT and _is_zero(value) else value
    return pairs


def _is_zero(text: str) -> bool:
    match = _AMOUNT.fullmatch(text)
    return match is not None and float(match[1]) == 0


def _sorted_by_owner(pairs: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    """Return the values of a query in three dicts: settings of the bus itself, of its sender, and of its receiver."""
    values = {}
    for name, text in pairs.items():
        try:
            values[name] = _READERS[name](text)
        except _UnfitError as unfit:
            raise ConfigError(f"{name}={text}: expected {unfit}") from None
    return tuple({name: values[name] for name in names if name in values} for names in (_OWN, _SENDER, _RECEIVER))


_Reader = Callable[[str], Any]


def _reader(name: str, kind: Any) -> _Reader | None:
    """Return the function that parses the text of a field, chosen by the field's type and by the unit in its name.

    Return None if a URI cannot set the field.
    """
    if get_origin(kind) is UnionType:
        kinds = [one for one in get_args(kind) if one is not NoneType]
        inner = _reader(name, kinds[0]) if len(kinds) == 1 else None
        return None if inner is None else _optional(inner)
    if kind is bool:
        return _choice(_SWITCH, "on or off")
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _choice({str(one.value): one for one in kind}, " or ".join(str(one.value) for one in kind))
    if kind is int or kind is float:
        return _number(name, kind)
    return str if kind is str else None


def _optional(inner: _Reader) -> _Reader:
    def read(text: str) -> Any:
        if text.lower() == "none":
            return None
        try:
            return inner(text)
        except _UnfitError as unfit:
            raise _UnfitError(f"{unfit}, or none") from None

    return read


def _choice(values: Mapping[str, Any], expected: str) -> _Reader:
    def read(text: str) -> Any:
        try:
            return values[text.lower()]
        except KeyError:
            raise _UnfitError(expected) from None

    return read


def _number(name: str, kind: type[int] | type[float]) -> _Reader:
    units, expected = {"": 1.0}, "a whole number" if kind is int else "a number"
    parts = name.split("_")
    if "bps" in parts:
        units, expected = _BITS, "bits per second, as in 64kbit, 100mbit or 1gbit"
    elif "bytes" in parts:
        units, expected = _BYTES, "bytes, as in 65536, 64k or 16MiB"
    elif parts[-1] == "s" or parts[-2:-1] == ["s"]:
        units, expected = _SECONDS, "seconds, as in 0.5, 20ms or 500us"

    def read(text: str) -> int | float:
        match = _AMOUNT.fullmatch(text)
        factor = units.get(match[2].lower()) if match else None
        if match is None or factor is None:
            raise _UnfitError(expected)
        if kind is int and match[1].isdigit():
            return int(match[1]) * int(factor)  # a float has only 53 bits
        value = float(match[1]) * factor
        if not math.isfinite(value) or (kind is int and not value.is_integer()):
            raise _UnfitError(expected)
        return kind(value)

    return read


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return str(value.value)
    return "none" if value is None else str(value)


def _readers(owner: type[Any]) -> dict[str, _Reader]:
    found = ((name, _reader(name, kind)) for name, kind in get_type_hints(owner).items())
    return {name: reader for name, reader in found if reader is not None}


def _defaults(owner: type[Any]) -> dict[str, Any]:
    return {one.name: one.default for one in fields(owner) if one.default is not MISSING}


_LONG_TO_SHORT = {full: short for short, full in _SHORT.items()}
_BY_OWNER = {owner: _readers(owner) for owner in (BusConfig, SenderConfig, ReceiverConfig)}
_DEFAULTS = {owner: _defaults(owner) for owner in _BY_OWNER}
_OWN = tuple(name for name in _BY_OWNER[BusConfig] if name not in ("group", "port"))
_SENDER, _RECEIVER = tuple(_BY_OWNER[SenderConfig]), tuple(_BY_OWNER[ReceiverConfig])
_READERS = {name: _BY_OWNER[BusConfig][name] for name in _OWN} | _BY_OWNER[SenderConfig] | _BY_OWNER[ReceiverConfig]
