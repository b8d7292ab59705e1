"""Settings: one frozen object from defaults, a TOML file and FJM2ADMIN_* variables, each overriding those before."""

import ipaddress
import itertools
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from .errors import ConfigurationError
from .web.sockets import is_address, plain_address

ENVIRONMENT_PREFIX = "FJM2ADMIN_"
SERVICE_DATA = Path("/var/lib/fjm2admin/fjm2admin.sqlite")
"""SQLite file of the packaged service."""

_T = TypeVar("_T")


def _setting(
    default: _T, text: str, *, low: float = 0, high: float = 0, choices: tuple[str, ...] = (), check: str = ""
) -> _T:
    metadata = {"text": text, "low": low, "high": high, "choices": choices, "check": check}
    return field(default=default, metadata=metadata)


class Viewers(Enum):
    """People who may see the page."""

    EVERYONE = "everyone"
    THIS_HOST = "everyone on this host"
    TOKENS = "those with a token"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig:
    """All settings of the service, by their names in a file. The variable for a name is FJM2ADMIN_NAME."""

    host: str = _setting("127.0.0.1", "address to listen on", check="address")
    port: int = _setting(8750, "TCP port of the API and the page; 0 takes a free one", low=0, high=65_535)
    data: str = _setting("", "SQLite file; empty: that of the packaged service if it exists, else ./fjm2admin.sqlite")
    certificate: str = _setting("", "TLS certificate chain, PEM; empty: no TLS", check="file")
    certificate_key: str = _setting("", "TLS private key, PEM", check="file")
    trusted_proxies: tuple[str, ...] = _setting(
        (), "addresses of reverse proxies whose X-Forwarded-For is trusted", check="address"
    )
    page: str = _setting(
        "auto",
        "who may see the page: open is everyone, token is people with a token, auto is everyone on this host if host is"
        " loopback and no proxy is trusted, else token",
        choices=("auto", "open", "token"),
    )
    heartbeat_s: float = _setting(10.0, "seconds between a gateway's heartbeats", low=0.1, high=300)
    stale_s: float = _setting(30.0, "seconds of silence after which a node is stale", low=0.2, high=86_400)
    gone_s: float = _setting(
        600.0, "seconds of silence after which a node is gone, and off the gateways' list", low=0.3, high=1e7
    )
    forget_s: float = _setting(
        604_800.0, "seconds of silence after which a node and its history are forgotten", low=0.4, high=1e8
    )
    advert_port: int = _setting(8750, "UDP port that advertises the list's version; 0: none", low=0, high=65_535)
    advert_every_s: float = _setting(
        15.0, "seconds between advertisements of the version; a change is advertised at once", low=0.1, high=3600
    )
    address_per_s: float = _setting(
        50.0, "requests a second from one address (IPv6: a /64); bursts of four times that", low=1, high=1e6
    )
    token_per_s: float = _setting(20.0, "requests a second with one token; bursts of four times that", low=1, high=1e6)
    body_bytes: int = _setting(262_144, "longest body of a request", low=4096, high=16 << 20)
    nodes_max: int = _setting(10_000, "maximum of registered nodes", low=1, high=100_000)
    nodes_per_token: int = _setting(64, "maximum of nodes registered with one token", low=1, high=100_000)
    connections_max: int = _setting(12_000, "maximum of connections", low=8, high=100_000)
    connections_per_address: int = _setting(
        1000, "maximum of connections from one address (IPv6: a /64)", low=1, high=100_000
    )
    waits_max: int = _setting(10_000, "maximum of requests that wait for a change of the list", low=1, high=100_000)
    waits_per_token: int = _setting(16, "maximum of waiting requests with one token", low=1, high=100_000)
    streams_max: int = _setting(64, "maximum of open pages", low=1, high=10_000)
    streams_per_token: int = _setting(16, "maximum of open pages with one token", low=1, high=10_000)
    log_level: str = _setting(
        "info", "least level of events that are logged", choices=("debug", "info", "warning", "error")
    )
    log_format: str = _setting(
        "auto", "text for people, json for machines; auto: text on a terminal", choices=("auto", "text", "json")
    )

    def __post_init__(self) -> None:
        faults = [*_own_faults(self), *_common_faults(self)]
        if faults:
            raise ConfigurationError(faults)

    @property
    def is_loopback(self) -> bool:
        """True if only this host reaches the service."""
        return ipaddress.ip_address(self.host).is_loopback

    @property
    def viewers(self) -> Viewers:
        """People who may see the page, as the settings `page`, `host` and `trusted_proxies` determine."""
        if self.page != "auto":
            return Viewers.EVERYONE if self.page == "open" else Viewers.TOKENS
        return Viewers.THIS_HOST if self.is_loopback and not self.trusted_proxies else Viewers.TOKENS

    @property
    def proxies(self) -> frozenset[str]:
        """Addresses of trusted proxies, as sockets write them."""
        return frozenset(map(plain_address, self.trusted_proxies))

    @property
    def data_path(self) -> Path:
        """Path of the SQLite file."""
        if self.data:
            return Path(self.data)
        # The folder, because the file appears only a while after the service has started.
        return SERVICE_DATA if SERVICE_DATA.parent.is_dir() else Path(SERVICE_DATA.name)


def _own_faults(config: AdminConfig) -> Iterator[str]:
    """Yield a message for each single value that is wrong."""
    for one in fields(config):
        value = getattr(config, one.name)
        for item in value if isinstance(value, tuple) else (value,):
            expected = _expected(item, one.metadata)
            if expected:
                yield f"{one.name}={_shown(value)}: expected {expected}"


def _expected(value: object, metadata: Mapping[str, Any]) -> str:
    """Return a text that tells what is expected instead of a value; empty if the value is valid."""
    if metadata["choices"]:
        return "" if value in metadata["choices"] else f"one of {', '.join(metadata['choices'])}"
    if isinstance(value, int | float):
        low, high = metadata["low"], metadata["high"]
        return "" if low <= value <= high else f"{_plain(low)} to {_plain(high)}"
    if metadata["check"] == "address":
        return "" if is_address(str(value)) else "an IP address, such as 127.0.0.1, 0.0.0.0 or ::"
    if metadata["check"] == "file" and value:
        return "" if os.access(str(value), os.R_OK) else "a readable file"
    return ""


def _common_faults(config: AdminConfig) -> Iterator[str]:
    """Yield a message for each combination of values that is wrong."""
    steps = ("heartbeat_s", "stale_s", "gone_s", "forget_s")
    for less, more in itertools.pairwise(steps):
        if getattr(config, less) >= getattr(config, more):
            yield f"{more}={getattr(config, more):g}: expected more than {less}, which is {getattr(config, less):g}"
    if bool(config.certificate) != bool(config.certificate_key):
        missing = "certificate_key" if config.certificate else "certificate"
        yield f"{missing}: expected a file, because TLS needs a certificate and its key"


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Sources of settings.

_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "int": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "float": (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number"),
    "str": (lambda value: isinstance(value, str), "a text in quotes"),
    "tuple": (
        lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
        "a list of texts",
    ),
}


def load(path: Path | None, environment: Mapping[str, str], **options: object) -> AdminConfig:
    """Return the settings from the file, if any, the environment, and the options that are not None, in this order.

    Raise ConfigurationError with all mistakes, each with the file or variable that it is in.
    """
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    faults: list[str] = []
    for place, name, value in (*_from_file(path, faults), *_from_environment(environment, faults)):
        values[name], places[name] = value, place
    given = {name: value for name, value in options.items() if value is not None}
    values.update(given)
    places.update({name: f"--{name.replace('_', '-')}" for name in given})
    try:
        config = AdminConfig(**values)
    except ConfigurationError as error:
        faults += [_placed(fault, places) for fault in error.faults]
    if faults:
        raise ConfigurationError(faults)
    return config


def _placed(fault: str, places: Mapping[str, str]) -> str:
    name = fault.partition(":")[0].partition("=")[0]
    return f"{places.get(name, 'default')}: {fault}"


_Found = tuple[str, str, Any]
"""Origin, name and value of a setting."""


def _from_file(path: Path | None, faults: list[str]) -> list[_Found]:
    if path is None:
        return []
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError([f"{path}: {error.strerror}"]) from error
    except (ValueError, RecursionError) as error:  # also numbers too long, and lists too deep, for Python
        raise ConfigurationError([f"{path}: not TOML: {error}"]) from error
    found: list[_Found] = []
    for name, value in content.items():
        kind = _kind(name)
        if kind is None:
            faults.append(f"{path}: {name}: unknown, expected one of {', '.join(_NAMES)}")
            continue
        fits, expected = _KINDS[kind]
        if fits(value):
            found.append((str(path), name, _as_kind(kind, value)))
        else:
            faults.append(f"{path}: {name}={value!r}: expected {expected}")
    return found


def _from_environment(environment: Mapping[str, str], faults: list[str]) -> list[_Found]:
    found: list[_Found] = []
    for variable, text in environment.items():
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable == f"{ENVIRONMENT_PREFIX}CONFIG":
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        kind = _kind(name)
        if kind is None:
            known = ", ".join(f"{ENVIRONMENT_PREFIX}{one.upper()}" for one in _NAMES)
            faults.append(f"{variable}: unknown, expected one of {known}")
            continue
        try:
            found.append((variable, name, _from_text(kind, text)))
        except ValueError:
            faults.append(f"{variable}={text}: expected {_KINDS[kind][1]}")
    return found


def _kind(name: str) -> str | None:
    default = _DEFAULTS.get(name)
    return None if default is None else type(default).__name__


def _as_kind(kind: str, value: Any) -> Any:
    if kind == "tuple":
        return tuple(value)
    return float(value) if kind == "float" else value


def _from_text(kind: str, text: str) -> Any:
    match kind:
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "tuple":
            return tuple(part.strip() for part in text.split(",") if part.strip())
        case _:
            return text


class Setting(NamedTuple):
    """Description of a setting, for people."""

    name: str
    text: str
    allowed: str
    """Allowed values; empty if any text is allowed."""
    default: str


def settings() -> Iterator[Setting]:
    """Yield the descriptions of all settings."""
    for one in fields(AdminConfig):
        default = ",".join(one.default) if isinstance(one.default, tuple) else _shown(one.default)
        yield Setting(one.name, one.metadata["text"], _allowed(one.default, one.metadata), default or "empty")


def _allowed(default: object, metadata: Mapping[str, Any]) -> str:
    if metadata["choices"]:
        return ", ".join(metadata["choices"])
    if isinstance(default, int | float):
        return f"{_plain(metadata['low'])} to {_plain(metadata['high'])}"
    return ""


def _plain(bound: float) -> str:
    return f"{bound:.15g}"


_DEFAULTS: dict[str, Any] = {one.name: one.default for one in fields(AdminConfig)}
_NAMES = tuple(_DEFAULTS)


def with_port(config: AdminConfig, port: int) -> AdminConfig:
    """Return the settings with another port."""
    return replace(config, port=port)
