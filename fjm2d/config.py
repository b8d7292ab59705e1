"""Settings of a gateway: one frozen object from a TOML file and FJM2D_* variables, which override the file.

All mistakes are reported at once, each with its file, its key and what is allowed.
"""

# ruff: noqa: RUF009 -- the defaults call dataclasses.field

import ipaddress
import socket
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from fjm2.base.quantities import counted
from fjm2.norm import Address

from . import values as reading
from .errors import ConfigurationError, ConfigurationErrors
from .keys import PublicKey
from .tunnel import group_hash
from .values import Endpoint, Rate, Reader, UnfitError, show

ENVIRONMENT_PREFIX: Final = "FJM2D_"
FILE_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}CONFIG"
DEFAULT_FILE: Final = Path("/etc/fjm2/fjm2d.toml")
"""Settings file of the commands that are given none, if it is there."""
_NO_FILE: Final = f"no settings file (no {DEFAULT_FILE}, and neither --config nor {FILE_VARIABLE} names one)"
ENVIRONMENT: Final = "environment"
GROUPS_MAX: Final = 64
"""Maximum number of groups of a gateway: each takes two sockets."""
PEERS_MAX: Final = 1024
"""Maximum number of peers of a gateway: each is probed, and gets its own copy of the trains that it wants."""

_T = TypeVar("_T")


def _setting(default: _T, reader: Reader, meaning: str) -> _T:
    return field(default=default, metadata={"reader": reader, "meaning": meaning})


def _required(reader: Reader, meaning: str) -> Any:
    return field(metadata={"reader": reader, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class WanConfig:
    """Settings of the table `[wan]`: the Internet's side."""

    listen: tuple[Address, ...] = _setting(
        (("0.0.0.0", 5741),),
        reading.several(reading.PLACE, 2, 1),
        "UDP addresses of this host; two if one is IPv4 and one IPv6",
    )
    endpoints: tuple[Endpoint, ...] = _setting(
        (),
        reading.several(reading.ENDPOINT, 8),
        "where other gateways reach this one; none: the addresses from which it reaches the node-list service",
    )
    rate: Rate = _setting(Rate(None, is_measured=True), reading.RATE, "rate to a peer that has none of its own")
    queue_bytes: int = _setting(
        8 << 20,
        reading.whole(65_536, 1 << 30),
        "most bytes queued for a link; a slow one queues 250 ms of its rate, or 256 KiB if those go within 2 s",
    )
    uplink: float | None = _setting(None, reading.UPLINK, "rate to all peers together")
    mtu: int | None = _setting(
        None, reading.whole_or("find", 576, 65_535), "longest IP packet that is sent, or find it out for each peer"
    )
    mtu_max: int = _setting(1500, reading.whole(1280, 65_535), "longest IP packet that is tried")
    keepalive_s: float = _setting(10.0, reading.number(1, 25), "seconds between probes to an idle peer")


@dataclass(frozen=True, slots=True, kw_only=True)
class LanConfig:
    """Settings of the table `[lan]`: the LAN's side."""

    interface: str | None = _setting(None, reading.INTERFACE, "network interface of the LAN")
    label: str = _setting("", reading.OPTIONAL_TEXT, "name of the LAN, the same for all its gateways if it has several")
    ttl: int = _setting(1, reading.whole(0, 255), "hops that multicast from other LANs may take in this one")
    beacon: Address = _setting(
        ("239.192.57.41", 5742), reading.GROUP, "group in which the gateways of one LAN find each other"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """Settings of the table `[admin]`: access to the node-list service."""

    url: str = _setting("", reading.URL, "URL of the node-list service (fjm2admin)")
    token: str = _setting("", reading.OPTIONAL_TEXT, "token made by `fjm2admin token create`; better kept in a file")
    token_file: Path | None = _setting(None, reading.PATH, "file that holds the token")
    ca_file: Path | None = _setting(None, reading.PATH, "certificates to trust besides the system's, in PEM")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusConfig:
    """Settings of the table `[status]`: the gateway's own status server."""

    listen: Address | None = _setting(
        ("127.0.0.1", 5743), reading.LOCAL_PLACE, "HTTP address of /healthz, /metrics and /status"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of the table `[log]`: the log, which goes to standard error."""

    level: str = _setting("info", reading.choice("debug", "info", "warning", "error"), "least level that is logged")
    format: str = _setting(
        "auto", reading.choice("auto", "text", "json"), "text for people, json for machines; auto: text on a terminal"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of a table `[[group]]`: a multicast group that the gateway carries."""

    address: Address = _required(reading.GROUP, "the group and its port")
    carry: str = _setting(
        "interest",
        reading.choice("interest", "always"),
        "interest: where JMS connections subscribe; always: everywhere (for NORM without JMS)",
    )

    @property
    def hash(self) -> int:
        """Number that stands for the group in the tunnel."""
        return group_hash(*self.address)

    @property
    def is_always(self) -> bool:
        return self.carry == "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticPeer:
    """Settings of a table `[[peer]]`: another gateway, known without the node-list service."""

    public_key: PublicKey = _required(reading.PUBLIC_KEY, "its public key")
    name: str = _setting("", reading.OPTIONAL_TEXT, "name in logs and metrics")
    endpoints: tuple[Endpoint, ...] = _setting(
        (), reading.several(reading.ENDPOINT, 8), "where it is reached; none: it has to call"
    )
    lan: str = _setting("", reading.OPTIONAL_TEXT, "label of its LAN")
    rate: Rate | None = _setting(None, reading.RATE, "rate to it; default: that of [wan]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """All settings of a gateway."""

    name: str = _setting("", reading.OPTIONAL_TEXT, "name of this gateway; default: the host's name")
    key_file: Path = _setting(
        Path("/etc/fjm2/fjm2d.key"), reading.FILE, "file with the private key, made by `fjm2d keygen`"
    )
    state_directory: Path | None = _setting(
        Path("/var/lib/fjm2d"), reading.PATH, "directory of the last node list, for a start without the service"
    )
    wan: WanConfig = field(default_factory=WanConfig)
    lan: LanConfig = field(default_factory=LanConfig)
    admin: AdminConfig = field(default_factory=AdminConfig)
    status: StatusConfig = field(default_factory=StatusConfig)
    log: LogConfig = field(default_factory=LogConfig)
    groups: tuple[GroupConfig, ...] = ()
    peers: tuple[StaticPeer, ...] = ()

    @property
    def shown_name(self) -> str:
        return self.name or socket.gethostname()[: reading.NAME_CHARS_MAX]


_SECTIONS: Final = {"wan": WanConfig, "lan": LanConfig, "admin": AdminConfig, "status": StatusConfig, "log": LogConfig}
_LISTS: Final = {"group": (GroupConfig, "groups", GROUPS_MAX), "peer": (StaticPeer, "peers", PEERS_MAX)}


def load(path: Path | None, environment: Mapping[str, str]) -> GatewayConfig:
    """Return the settings from a file and the environment. Raise ConfigurationErrors with all mistakes found."""
    loading = _Loading()
    content = {} if path is None else _content(path)
    config = loading.read_file(_NO_FILE if path is None else str(path), content)
    config = loading.read_environment(config, environment)
    loading.check(config)
    if loading.errors:
        raise ConfigurationErrors(loading.errors)
    return config


def check_own_key(path: Path | None, config: GatewayConfig, own: PublicKey) -> None:
    """Raise ConfigurationErrors if a gateway is its own peer: the same key twice is a mistake somewhere."""
    errors = [
        ConfigurationError(
            str(path or ENVIRONMENT), f"peer[{number}].public_key", "is this gateway's own", "that of another gateway"
        )
        for number, peer in enumerate(config.peers, 1)
        if peer.public_key == own
    ]
    if errors:
        raise ConfigurationErrors(errors)


def _content(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
        raise ConfigurationErrors(
            [ConfigurationError(str(path), "file", problem, "a file such as packaging/fjm2d.toml")]
        ) from None
    except (ValueError, RecursionError) as error:  # also numbers too long, and lists too deep, for Python
        problem = f"is not TOML: {error}"
        raise ConfigurationErrors([ConfigurationError(str(path), "file", problem, "TOML 1.0 in UTF-8")]) from None


class _Loading:
    """One reading of the settings, with the mistakes found so far."""

    def __init__(self) -> None:
        self.errors: list[ConfigurationError] = []
        self._places: dict[str, str] = {}
        """Variables of the environment, by the keys that they set."""
        self._file = "defaults"

    def read_file(self, file: str, content: Mapping[str, Any]) -> GatewayConfig:
        self._file = file
        plain = {key: value for key, value in content.items() if key not in _SECTIONS and key not in _LISTS}
        values = self._table(GatewayConfig, plain, "")
        for key, kind in _SECTIONS.items():
            table = content.get(key, {})
            if isinstance(table, dict):
                values[key] = kind(**self._table(kind, table, f"{key}."))
            else:
                self._refuse(key, table, f"a table, [{key}]")
        for key, (kind, name, most) in _LISTS.items():
            values[name] = tuple(self._tables(key, kind, most, content.get(key, [])))
        return GatewayConfig(**values)

    def _tables(self, key: str, kind: type[Any], most: int, found: Any) -> Iterator[Any]:
        if not isinstance(found, list) or len(found) > most or not all(isinstance(table, dict) for table in found):
            self._refuse(key, found, f"up to {counted(most, 'table')}, each [[{key}]]")
            return
        for number, table in enumerate(found, 1):
            place = f"{key}[{number}]."
            before = len(self.errors)
            values = self._table(kind, table, place)
            for one in fields(kind):
                if one.default is MISSING and one.name not in table:
                    self._add(f"{place}{one.name}", "is missing", one.metadata["reader"].allowed)
            if len(self.errors) == before:
                yield kind(**values)

    def _table(self, kind: type[Any], table: Mapping[str, Any], place: str) -> dict[str, Any]:
        known = _settings_of(kind)
        values: dict[str, Any] = {}
        for key, value in table.items():
            if key not in known:
                names = [
                    *known,
                    *([*(f"[{name}]" for name in _SECTIONS), "[[group]]", "[[peer]]"] if not place else []),
                ]
                self._add(f"{place}{key}", "is unknown", f"one of {', '.join(names)}")
                continue
            reader: Reader = known[key].metadata["reader"]
            try:
                values[key] = reader.read(value)
            except UnfitError:
                self._refuse(f"{place}{key}", value, reader.allowed)
        return values

    def read_environment(self, config: GatewayConfig, environment: Mapping[str, str]) -> GatewayConfig:
        for variable, text in sorted(environment.items()):
            if variable.startswith(ENVIRONMENT_PREFIX) and variable != FILE_VARIABLE:
                config = self._with_variable(config, variable, text)
        return config

    def _with_variable(self, config: GatewayConfig, variable: str, text: str) -> GatewayConfig:
        target = VARIABLES.get(variable)
        if target is None:
            self._add(variable, "is unknown", f"one of {', '.join(VARIABLES)}", ENVIRONMENT)
            return config
        section, key, reader = target
        try:
            value = reader.read(reader.from_text(text))
        except (UnfitError, ValueError):
            self._add(variable, f"is {_shown(text)}", reader.allowed, ENVIRONMENT)
            return config
        self._places[f"{section}.{key}".lstrip(".")] = variable
        if key == "groups":
            return replace(config, groups=tuple(GroupConfig(address=address) for address in value))
        if not section:
            return replace(config, **{key: value})
        return replace(config, **{section: replace(getattr(config, section), **{key: value})})

    def check(self, config: GatewayConfig) -> None:
        """Record an error for each value that is valid alone, but not together with the others."""
        if not config.groups and not any(error.key.startswith("group") for error in self.errors):
            self._add("group", "is missing", 'at least one [[group]], as in address = "239.192.57.40:5740"')
        self._check_groups(config.groups, config.lan.beacon)
        self._check_ports(config)
        self._check_peers(config)
        self._check_admin(config)
        families = {":" in host for host, _ in config.wan.listen}
        if len(families) < len(config.wan.listen):
            shown = ", ".join(map(show, config.wan.listen))
            self._add("wan.listen", f"is {shown}", "one IPv4 and one IPv6 address at the most")
        if config.wan.mtu_max < (config.wan.mtu or 0):
            self._add("wan.mtu", f"is {config.wan.mtu}", f"at most wan.mtu_max, which is {config.wan.mtu_max}")

    def _check_groups(self, groups: Sequence[GroupConfig], beacon: Address) -> None:
        if any(group.address == beacon for group in groups):
            self._add("lan.beacon", f"is {show(beacon)}, which is a [[group]]", "a group of its own")
        seen: dict[int, GroupConfig] = {}
        for number, group in enumerate(groups, 1):
            other = seen.setdefault(group.hash, group)
            if other is group:
                continue
            key = f"group[{number}].address"
            if other.address == group.address:
                self._add(key, f"is {show(group.address)} again", "each group once")
            else:
                shown = f"{show(group.address)}, which cannot be told from {show(other.address)} in the tunnel"
                self._add(key, f"is {shown}", "another port or address for one of them")

    def _check_ports(self, config: GatewayConfig) -> None:
        """Refuse a wildcard address with the port of a group: its socket would receive that group's datagrams."""
        groups = {f"group[{number}].address": group.address for number, group in enumerate(config.groups, 1)}
        for host, port in config.wan.listen:
            for key, (group, taken) in (groups | {"lan.beacon": config.lan.beacon}).items():
                if port == taken and ipaddress.ip_address(host).is_unspecified and (":" in host) == (":" in group):
                    shown = f"{show((host, port))}, whose port {key} has"
                    self._add("wan.listen", f"is {shown}", "a port of its own, or one of this host's addresses")

    def _check_peers(self, config: GatewayConfig) -> None:
        seen: set[int] = set()
        for number, peer in enumerate(config.peers, 1):
            if peer.public_key.id in seen:
                self._add(f"peer[{number}].public_key", f"is {peer.public_key.text} again", "each gateway once")
            seen.add(peer.public_key.id)

    def _check_admin(self, config: GatewayConfig) -> None:
        admin = config.admin
        if admin.url and not admin.token and admin.token_file is None:
            self._add("admin.token_file", "is missing", "a file with the token that `fjm2admin token create` printed")
        if admin.token and admin.token_file is not None:
            self._add("admin.token", "is given besides admin.token_file", "one of the two")

    def _refuse(self, key: str, value: Any, allowed: str) -> None:
        self._add(key, f"is {_shown(value)}", allowed)

    def _add(self, key: str, problem: str, allowed: str, file: str | None = None) -> None:
        variable = self._places.get(key)
        if variable is not None:
            file, key = ENVIRONMENT, variable
        self.errors.append(ConfigurationError(file or self._file, key, problem, allowed))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _settings_of(kind: type[Any]) -> dict[str, Field[Any]]:
    return {one.name: one for one in fields(kind) if "reader" in one.metadata}


def _variables() -> dict[str, tuple[str, str, Reader]]:
    """Return section, key and reader of the setting that each environment variable overrides."""
    found = {
        f"{ENVIRONMENT_PREFIX}{name.upper()}": ("", name, one.metadata["reader"])
        for name, one in _settings_of(GatewayConfig).items()
    }
    for section, kind in _SECTIONS.items():
        for name, one in _settings_of(kind).items():
            found[f"{ENVIRONMENT_PREFIX}{section.upper()}_{name.upper()}"] = (section, name, one.metadata["reader"])
    found[f"{ENVIRONMENT_PREFIX}GROUPS"] = ("", "groups", reading.several(reading.GROUP, GROUPS_MAX, 1))
    return found


VARIABLES: Final = _variables()


def settings() -> Iterator[tuple[str, str, str]]:
    """Yield key, meaning and allowed values of each setting, for `--help` and the guide."""
    kinds: list[tuple[str, type[Any]]] = [
        ("", GatewayConfig),
        *((f"{name}.", kind) for name, kind in _SECTIONS.items()),
    ]
    kinds += [(f"{name}[].", kind) for name, (kind, _, _) in _LISTS.items()]
    for place, kind in kinds:
        for name, one in _settings_of(kind).items():
            yield f"{place}{name}", one.metadata["meaning"], one.metadata["reader"].allowed
