"""Conversion of bus URIs, `fjm2://GROUP:PORT?interface=IF&NAME=VALUE&...`, to settings and back.

The names in the query are the fields of BusConfig, SenderConfig and ReceiverConfig, which define types and bounds.
"""

import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, Self, get_args, get_origin, get_type_hints
from urllib.parse import quote, unquote

from fjm2.base.errors import ConfigError
from fjm2.base.quantities import SECONDS_EXPECTED, UNIT_SECONDS, check_fields
from fjm2.norm import ReceiverConfig, SenderConfig, Session, Sync, UdpConfig

from .inbox import ConsumerSettings

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
    files_directory: str | None = None
    """Folder for files that are received as bodies of messages, until they are saved. None leaves it to the system."""
    files_bytes_max: int = 16 << 30
    """Maximum number of bytes on disk of files that are being received, or belong to messages that are in use."""
    sender: SenderConfig = field(default_factory=SenderConfig)
    """Settings for sending."""
    receiver: ReceiverConfig = field(default_factory=ReceiverConfig)
    """Settings for receiving."""

    def __post_init__(self) -> None:
        check_fields(self)
        # UdpConfig checks the bounds. A scope can only be checked on the host that it is meant for.
        UdpConfig(group=self.group, port=self.port, interface=self.interface, ttl=self.ttl, dscp=self.dscp)
        directory = self.files_directory
        if directory is not None and not os.path.isdir(directory):
            raise ConfigError(f"files_directory={directory}: expected an existing directory")
        if self.files_bytes_max < 0:
            raise ConfigError(f"files_bytes_max={self.files_bytes_max}: expected 0 or more")

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
        written = _query(match["query"] or "")
        base = cls() if defaults is None else defaults
        try:
            return base._with(place, written)
        except ConfigError as error:
            raise _as_written(error, written, lambda others: base._with(place, others)) from None

    def _with(self, place: Mapping[str, Any], written: "_Query") -> Self:
        """Return these settings with a group and port, and with the settings of a query, in place of their own."""
        own, sender, receiver = _sorted_by_owner(written)
        return replace(
            self,
            **place,
            **own,
            sender=replace(self.sender, **sender),
            receiver=replace(self.receiver, **receiver),
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

    def to_uri(self, defaults: "BusConfig | None" = None) -> str:
        """Return the URI of these settings, without those that are as in `defaults`.

        Without `defaults`, the fields' own defaults apply.
        """
        base = BusConfig() if defaults is None else defaults
        host = f"[{self.group.replace('%', '%25')}]" if ":" in self.group else self.group
        pairs = []
        parts = ((self, base, _OWN), (self.sender, base.sender, _SENDER), (self.receiver, base.receiver, _RECEIVER))
        for owner, usual, names in parts:
            for name in names:
                value = getattr(owner, name)
                if value != getattr(usual, name):
                    pairs.append(f"{_LONG_TO_SHORT.get(name, name)}={quote(_text(value), safe='')}")
        query = f"?{'&'.join(pairs)}" if pairs else ""
        return f"fjm2://{host}:{self.port}{query}"


def check_is_group(config: BusConfig) -> None:
    """Raise ConfigError if the address is that of one host. Two hosts can have a NORM session, but no bus."""
    if not UdpConfig(group=config.group, port=config.port, interface=config.interface).is_multicast:
        raise ConfigError(
            f"{config.group} is the address of one host: expected a multicast group, such as {DEFAULT_GROUP}"
        )


def _without_zone_escape(host: str) -> str:
    """Return an IPv6 host with its scope written as `%eth0`. RFC 6874 writes `%25eth0` in URIs, but people write
    `%eth0`."""
    address, percent, scope = host.partition("%")
    return f"{address}%{unquote(scope.removeprefix('25'))}" if percent else address


def unknown_setting(written: str, name: str, known: Collection[str]) -> ConfigError:
    """Return the error for a setting that is not among the known ones."""
    meant = get_close_matches(name, known, 1)
    return ConfigError(
        f"{written}: unknown setting; did you mean {meant[0]}?"
        if meant
        else f"{written}: unknown setting, expected one of {', '.join(sorted(known))}"
    )


class _Written(NamedTuple):
    """A setting as the user wrote it: short names stay short, and values keep their units."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.name}={self.text}"


_Query = Mapping[str, _Written]
"""The settings of a query by their full names."""


def _query(text: str) -> dict[str, _Written]:
    pairs: dict[str, _Written] = {}
    for part in filter(None, text.split("&")):
        name, equals, value = part.partition("=")
        one = _Written(unquote(name), unquote(value))
        full = _SHORT.get(one.name, one.name)
        if full in CLIENT_SETTINGS:
            raise ConfigError(
                f"{one}: a setting of the client, which a URI cannot have: expected it as an argument, as "
                f"in ConnectionFactory({one.name}=...)"
            )
        if full not in _READERS:
            raise unknown_setting(str(one), one.name, URI_SETTINGS)
        if not equals:
            raise ConfigError(f"{one.name}: expected {one.name}=VALUE")
        if full in pairs:
            also = "" if pairs[full].name == one.name else f", also as {pairs[full]}"
            raise ConfigError(f"{one}: given twice{also}, expected once")
        pairs[full] = one
    return pairs


def _as_written(error: ConfigError, written: _Query, check: Callable[[_Query], object]) -> ConfigError:
    """Return an error that names the settings as the user wrote them, and no others.

    `check` raises ConfigError for a query with a mistake. If settings are refused because another one has its default,
    the error names those without which the query is correct.
    """
    if error.setting not in _READERS:
        return error
    expected = error.expected.replace("None", "none")  # as a URI has it
    if error.setting in written:
        return ConfigError(f"{written[error.setting]}: expected {expected}")

    def is_to_blame(name: str) -> bool:
        try:
            check({other: one for other, one in written.items() if other != name})
        except ConfigError:
            return False
        return True

    blamed = [one for name, one in written.items() if is_to_blame(name)] or list(written.values())
    return ConfigError(f"{'&'.join(map(str, blamed))}: expected {error.setting} as well, of {expected}")


def _sorted_by_owner(written: _Query) -> tuple[dict[str, Any], ...]:
    """Return the values of a query in three dicts: settings of the bus itself, of its sender, and of its receiver."""
    values = {}
    for name, one in written.items():
        is_none = one.name in _SHORT and _is_zero(one.text)
        try:
            values[name] = None if is_none else _READERS[name](one.text)
        except _UnfitError as unfit:
            raise ConfigError(f"{one}: expected {unfit}") from None
    return tuple({name: values[name] for name in names if name in values} for names in (_OWN, _SENDER, _RECEIVER))


def _is_zero(text: str) -> bool:
    match = _AMOUNT.fullmatch(text)
    return match is not None and float(match[1]) == 0


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
        values = {str(one.value): one for one in kind if one is not Sync.KEPT}  # applications want whole streams
        return _choice(values, " or ".join(values))
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
        units, expected = {"": 1.0, **UNIT_SECONDS}, SECONDS_EXPECTED

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


_LONG_TO_SHORT = {full: short for short, full in _SHORT.items()}
_BY_OWNER = {owner: _readers(owner) for owner in (BusConfig, SenderConfig, ReceiverConfig)}
_OWN = tuple(name for name in _BY_OWNER[BusConfig] if name not in ("group", "port"))
_SENDER, _RECEIVER = tuple(_BY_OWNER[SenderConfig]), tuple(_BY_OWNER[ReceiverConfig])
CLIENT_SETTINGS: Final = frozenset(
    (
        *(one.name for one in fields(ConsumerSettings)),
        "client_id",
        "redeliveries_max",
        "confirm_timeout_s",
        "close_timeout_s",
        "keep",
        "replicas",
        "outbox",
        "outbox_bytes_max",
        "codec",
        "telemetry",
    )
)
"""Settings of connections and consumers, which a URI cannot have."""
_READERS = {name: _BY_OWNER[BusConfig][name] for name in _OWN} | _BY_OWNER[SenderConfig] | _BY_OWNER[ReceiverConfig]
URI_SETTINGS: Final = frozenset((*_READERS, *_SHORT))
"""Names of the settings that a URI can have."""
