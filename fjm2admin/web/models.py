"""Models of the API's requests and answers, with their limits."""

import base64
import binascii
import hashlib
import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ..registry.nodes import NAME_MAX, in_one_form

_COUNTER_MAX = 2**63 - 1
"""Largest integer of SQLite, and of a gateway's counters."""
_KEY_BYTES = 32
"""Length of an X25519 key (RFC 7748)."""
_ZONE = "[A-Za-z0-9._-]{1,15}"
"""Pattern of an IPv6 zone: a name of an interface, of at most IFNAMSIZ - 1 characters."""


class _Strict(BaseModel):
    """Model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _public_key(text: str) -> str:
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES or base64.b64encode(raw).decode() != text:
        raise ValueError("expected an X25519 public key: 32 bytes in base64, 44 characters")
    return text


def _endpoint(text: str) -> str:
    """Return HOST:PORT in canonical form, IPv6 in brackets."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65_535:
        raise ValueError("expected HOST:PORT with a port of 1 to 65535")
    return f"{_host(host)}:{int(port)}"


def _host(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        return f"[{_ipv6(text[1:-1])}]"
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        pass
    if not _is_host_name(text):
        raise ValueError("expected an IPv4 address, [IPv6 address] or host name before the port")
    return text.lower()


def _ipv6(text: str) -> str:
    """Return an IPv6 address in canonical form. Its zone is checked here: Python accepts any text."""
    address, percent, zone = text.partition("%")
    try:
        plain = ipaddress.IPv6Address(address)
    except ValueError:
        plain = None
    if plain is None or (percent and not re.fullmatch(_ZONE, zone)):
        raise ValueError("expected an IPv6 address in the brackets, optionally with an interface's name as zone")
    return f"{plain}{percent}{zone}"


def _is_host_name(text: str) -> bool:
    labels = text.split(".")
    fits = all(
        1 <= len(label) <= 63 and label.isascii() and label.replace("-", "a").isalnum() and label.strip("-") == label
        for label in labels
    )
    return fits and len(text) <= 253 and not labels[-1].isdigit()


def _group(text: str) -> str:
    endpoint = _endpoint(text)
    host = endpoint.rpartition(":")[0].strip("[]")
    if not _is_multicast(host):
        raise ValueError("expected GROUP:PORT with a multicast address, IPv6 in brackets")
    return endpoint


def _is_multicast(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_multicast
    except ValueError:
        return False


def _text(longest: int, pattern: str, *examples: str) -> Any:
    """Return a field for a text with limits. The pattern is for OpenAPI only: validators have better error messages."""
    return Field(min_length=1, max_length=longest, examples=list(examples), json_schema_extra={"pattern": pattern})


_PORT = ":[0-9]{1,5}$"
_IN_BRACKETS = rf"[0-9A-Fa-f:.]+(%{_ZONE})?"
Name = Annotated[str, _text(NAME_MAX, r"^\S(.*\S)?$", "paris"), AfterValidator(in_one_form)]
Version = Annotated[str, _text(32, r"^\S(.*\S)?$", "0.1.0"), AfterValidator(in_one_form)]
PublicKey = Annotated[
    str,
    _text(44, "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$", "Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc="),
    AfterValidator(_public_key),
]
Endpoint = Annotated[
    str,
    _text(264, rf"^([A-Za-z0-9.-]+|\[{_IN_BRACKETS}\]){_PORT}", "203.0.113.7:5741", "[2001:db8::7]:5741"),
    AfterValidator(_endpoint),
]
Group = Annotated[
    str,
    _text(64, rf"^(2[23][0-9](\.[0-9]{{1,3}}){{3}}|\[[Ff][Ff]{_IN_BRACKETS}\]){_PORT}", "239.192.57.40:5740"),
    AfterValidator(_group),
]
Endpoints = Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=8)]
NodeId = Annotated[str, Field(pattern=r"^[0-9a-f]{8}$", description="First 4 bytes of the public key's SHA-256, hex.")]
Counter = Annotated[int, Field(ge=0, le=_COUNTER_MAX, strict=True)]
DropReason = Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]


def node_id_of(public_key: str) -> str:
    """Return the id of the node with this public key. Gateways have the same id in their tunnels."""
    return hashlib.sha256(base64.b64decode(public_key)).hexdigest()[:8]


# Requests of gateways


class Registration(_Strict):
    """Name, key and endpoints of a gateway."""

    name: Name = Field(description="Unique; printable characters.")
    public_key: PublicKey = Field(description="X25519, 32 bytes in base64.")
    endpoints: Endpoints = Field(description="Endpoints at which other gateways reach it: HOST:PORT, best first.")
    groups: Annotated[tuple[Group, ...], Field(max_length=64)] = Field(
        default=(), description="Multicast groups that the gateway forwards: GROUP:PORT."
    )
    lan: Name | None = Field(default=None, description="Label of its LAN, the same for all gateways of that LAN.")
    version: Version = Field(description="Version of the gateway's software.")


class LinkReport(_Strict):
    """Counters of the link to one peer since the gateway started, and its latest measurements."""

    peer: NodeId
    bytes_in: Counter
    bytes_out: Counter
    datagrams_in: Counter = 0
    datagrams_out: Counter = 0
    drops: Annotated[dict[DropReason, Counter], Field(max_length=32)] = Field(
        default_factory=dict, description="Datagrams dropped, by reason."
    )
    rtt_ms: Annotated[float, Field(ge=0, le=1e6)] | None = None
    loss: Annotated[float, Field(ge=0, le=1, description="Share of datagrams lost.")] | None = None
    queue_bytes: Counter = 0
    is_up: bool | None = Field(default=None, description="True if the peer is connected.")
    rate_bps: Annotated[float, Field(ge=0, le=1e15)] | None = Field(
        default=None, description="Rate that the link is paced to, as configured or measured; null without a limit."
    )


class Sample(_Strict):
    """All links of a gateway at one time."""

    uptime_s: Annotated[float, Field(ge=0, le=1e10, description="Seconds since the gateway started.")]
    links: Annotated[tuple[LinkReport, ...], Field(max_length=1024)]
    is_forwarder: bool | None = Field(default=None, description="True if it forwards for its LAN, false on standby.")


class Heartbeat(_Strict):
    """Sign of life of a gateway."""

    endpoints: Endpoints | None = Field(default=None, description="New endpoints, if they have changed.")
    metrics: Sample | None = None


class Upload(_Strict):
    """Samples since the last upload, oldest first. The last sample was made now."""

    samples: Annotated[tuple[Sample, ...], Field(min_length=1, max_length=60)]


# Answers of the service


class AdvertPlace(BaseModel):
    """Origin of advertisements of the list's version."""

    port: int = Field(description="UDP port; 0 if there are none.")


class Registered(BaseModel):
    """Answer to a registration."""

    id: NodeId
    list_version: int
    heartbeat_s: float = Field(description="Seconds between heartbeats.")
    advert: AdvertPlace


class Heard(BaseModel):
    """Answer to a heartbeat or an upload."""

    list_version: int


class NodeEntry(BaseModel):
    """A node as other gateways need it."""

    id: NodeId
    name: str
    public_key: str
    endpoints: list[str]
    groups: list[str]
    lan: str | None
    version: str
    state: Literal["live", "stale", "gone"]
    last_seen: float = Field(description="Unix time of the last request, as of when the list was made.")


class NodeList(BaseModel):
    """All nodes that are not gone."""

    version: int = Field(description="Grows with every change: milliseconds of Unix time of the last one.")
    nodes: list[NodeEntry]


class HistoryPoint(BaseModel):
    """One slot: means of the rates, and the worst loss, round-trip time and queue."""

    at: int = Field(description="Beginning of the slot, Unix time.")
    in_bps: float
    out_bps: float
    drops_per_s: float
    loss: float | None
    rtt_ms: float | None
    queue_bytes: int


class History(BaseModel):
    """History of a node. Slots without samples are left out."""

    id: NodeId
    step_s: int = Field(description="Length of a slot in seconds.")
    points: list[HistoryPoint]


class Health(BaseModel):
    """Health of the service."""

    status: Literal["ok", "failing"]
    reason: str | None = None


class Problem(BaseModel):
    """Reason why a request was refused."""

    code: str = Field(description="One word for programs, which does not change.")
    message: str = Field(description="Text for people.")
