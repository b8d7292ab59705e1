"""Readers of settings: they convert values of TOML and of the environment. Each reader tells what it allows."""

import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fjm2.norm import Address

from .errors import KeyTextError
from .keys import PublicKey

_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(k|m|g)?(?:bit(?:/s)?|bps)?", re.IGNORECASE)
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_PORT = re.compile(r"[0-9]{1,5}")
_INTERFACE = re.compile(r"[A-Za-z0-9._-]{1,15}")
"""Pattern of interface names. It excludes control characters for terminals, which Linux allows in names."""
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
RATE_BPS_MIN, RATE_BPS_MAX = 10_000.0, 1e12
"""Bounds of a rate: a full datagram takes 1.2 s at the lowest, and no link reaches the highest."""
NAME_CHARS_MAX = 64
"""Maximum number of characters of a name: Linux allows host names of this length."""


class UnfitError(Exception):
    """Raised for a value that a reader does not allow."""


class Rate(NamedTuple):
    """Rate of a link."""

    bps: float | None
    """Bits a second; None: no limit."""
    is_measured: bool = False
    """True to measure the rate, up to `bps`."""


class Endpoint(NamedTuple):
    """Place where a gateway is reached: a host name or an address, and a port."""

    host: str
    port: int

    @property
    def family(self) -> int:
        """AF_INET or AF_INET6 of an address; 0 for a name, which has to be looked up."""
        if ":" in self.host:
            return socket.AF_INET6
        return socket.AF_INET if self.host.rpartition(".")[2].isdigit() else 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reader of one kind of value."""

    read: Callable[[Any], Any]
    """Function that converts a value of TOML. It raises UnfitError for a value that is not allowed."""
    allowed: str
    from_text: Callable[[str], Any] = str
    """Function that converts the text of a variable to a value as TOML gives it. It raises ValueError if it cannot."""


def show(address: Address) -> str:
    """Return an address as it is written in configurations."""
    return str(Endpoint(*address))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable() or value != value.strip():
        raise UnfitError
    return value


def _name(value: Any) -> str:
    text = _text(value)
    if len(text) > NAME_CHARS_MAX:
        raise UnfitError
    return text


def _optional_name(value: Any) -> str:
    return "" if value == "" else _name(value)


def _host_and_port(value: Any) -> tuple[str, int]:
    host, colon, port = _text(value).rpartition(":")
    if not colon or not _PORT.fullmatch(port) or not 1 <= int(port) <= 65_535:
        raise UnfitError
    if host.startswith("[") and host.endswith("]"):
        return _ip(host[1:-1], 6), int(port)
    if ":" in host or not host:
        raise UnfitError
    return host, int(port)


def _ip(text: str, version: int | None = None) -> str:
    host, percent, scope = text.partition("%")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise UnfitError from None
    if version is not None and address.version != version:
        raise UnfitError
    if percent and (address.version == 4 or not _INTERFACE.fullmatch(scope)):
        raise UnfitError
    return f"{address}{percent}{scope}"


def _endpoint(value: Any) -> Endpoint:
    host, port = _host_and_port(value)
    if ":" not in host:
        labels = host.split(".")
        if labels[-1].isdigit():
            host = _ip(host, 4)
        elif len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
            raise UnfitError
    return Endpoint(host, port)


def _place(value: Any) -> Address:
    """Read an address of this host to listen at."""
    host, port = _host_and_port(value)
    return _ip(host), port


def _optional_place(value: Any) -> Address | None:
    return None if value == "" else _place(value)


def _local_place(value: Any) -> Address | None:
    place = _optional_place(value)
    if place is not None and not ipaddress.ip_address(place[0].partition("%")[0]).is_loopback:
        raise UnfitError
    return place


def _group(value: Any) -> Address:
    host, port = _host_and_port(value)
    host = _ip(host)
    if not ipaddress.ip_address(host.partition("%")[0]).is_multicast:
        raise UnfitError
    return host, port


def _rate(value: Any) -> Rate:
    text = _text(value).lower()
    if text == "none":
        return Rate(None)
    kind, _, most = text.partition(" ")
    if kind == "measure":
        return Rate(_bps(most.strip()) if most else None, is_measured=True)
    return Rate(_bps(text))


def _bps(text: str) -> float:
    match = _RATE.fullmatch(text)
    bps = float(match[1]) * _PREFIXES[(match[2] or "").lower()] if match else 0.0
    if not RATE_BPS_MIN <= bps <= RATE_BPS_MAX:
        raise UnfitError
    return bps


def _uplink(value: Any) -> float | None:
    rate = _rate(value)
    if rate.is_measured:
        raise UnfitError
    return rate.bps


def _public_key(value: Any) -> PublicKey:
    try:
        return PublicKey.from_text(_text(value))
    except KeyTextError:
        raise UnfitError from None


def _url(value: Any) -> str:
    if value == "":
        return ""
    text = _text(value).rstrip("/")
    scheme, separator, rest = text.partition("://")
    if scheme not in ("http", "https") or not separator or not rest or any(c in rest for c in " ?#@"):
        raise UnfitError
    return text


def _file(value: Any) -> Path:
    return Path(_text(value))


def _path(value: Any) -> Path | None:
    return None if value == "" else _file(value)


def _interface(value: Any) -> str | None:
    return None if value == "" else _text(value)


TEXT = Reader(_name, f"a text of 1 to {NAME_CHARS_MAX} printable characters")
OPTIONAL_TEXT = Reader(_optional_name, f'a text of up to {NAME_CHARS_MAX} printable characters, or ""')
ENDPOINT = Reader(_endpoint, "HOST:PORT, as in gw.example.org:5741, 203.0.113.7:5741 or [2001:db8::7]:5741")
PLACE = Reader(_place, "ADDRESS:PORT of this host, as in 0.0.0.0:5741 or [::]:5741")
LOCAL_PLACE = Reader(_local_place, 'ADDRESS:PORT of the loopback interface, as in 127.0.0.1:5743, or "" for none')
GROUP = Reader(_group, "GROUP:PORT with a multicast address, as in 239.192.57.40:5740 or [ff15::57]:5740")
RATE = Reader(
    _rate, '"100mbit" (from 10kbit to 1000gbit), "measure", "measure 100mbit" (at the most), or "none" for no limit'
)
UPLINK = Reader(_uplink, '"100mbit" (from 10kbit to 1000gbit), or "none" for no limit')
PUBLIC_KEY = Reader(_public_key, "32 bytes in base64, as `fjm2d keygen` prints them")
URL = Reader(_url, 'https://HOST[:PORT][/PATH] or http://, without a query, or "" for none')
FILE = Reader(_file, "a path")
PATH = Reader(_path, 'a path, or "" for none')
INTERFACE = Reader(_interface, 'name or address of a network interface, or "" for the one by which groups are routed')


def number(low: float, high: float) -> Reader:
    """Return a reader of numbers within bounds."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise UnfitError
        return float(value)

    return Reader(read, f"a number from {low:g} to {high:g}", float)


def whole(low: int, high: int) -> Reader:
    """Return a reader of whole numbers within bounds."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise UnfitError
        return value

    return Reader(read, f"a whole number from {low} to {high}", int)


def whole_or(word: str, low: int, high: int) -> Reader:
    """Return a reader of whole numbers within bounds, or of a word, which becomes None."""
    inner = whole(low, high)

    def read(value: Any) -> int | None:
        if value == word:
            return None
        number: int = inner.read(value)
        return number

    return Reader(read, f'{inner.allowed}, or "{word}"', lambda text: text if text == word else int(text))


def choice(*words: str) -> Reader:
    """Return a reader that allows these words only."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise UnfitError
        return value

    return Reader(read, " or ".join(f'"{word}"' for word in words))


def several(inner: Reader, most: int, least: int = 0) -> Reader:
    """Return a reader of lists. A list has `least` to `most` values, and `inner` reads each value."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or not least <= len(value) <= most:
            raise UnfitError
        return tuple(inner.read(item) for item in value)

    bounds = f"{least} to {most}"
    return Reader(read, f"a list of {bounds}: {inner.allowed}", _split)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
