"""Metrics for Prometheus: counters of all sessions and buses of the process, as text and over HTTP.

`render()` returns the text, for web applications that serve it themselves. `serve_metrics()` serves it at `/metrics`
from a thread of its own; FJM2_METRICS=127.0.0.1:9464 in the environment does so for any program. Programs always
count, but counters are read only when somebody asks for metrics.

The families follow from the lists of counters, see `fjm2.base.instruments`.
"""

import contextlib
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from weakref import WeakKeyDictionary, WeakSet

from fjm2.base.version import __version__

from .base.errors import ConfigError
from .base.exposition import CONTENT_TYPE, Family, text
from .base.instruments import Instrument
from .base.readings import METRICS_VARIABLE, registered
from .bus.statistics import BUS_INSTRUMENTS, BusStatistics
from .norm.net.statistics import SESSION_INSTRUMENTS

__all__ = ["CONTENT_TYPE", "DEFAULT_ADDRESS", "MetricsServer", "render", "serve_metrics"]

DEFAULT_ADDRESS: Final = "127.0.0.1:9464"
"""Address where metrics are served by default."""
_KEEPER: Final = "keeper"
"""Layer of keepers, which bring the list of their counters along: programs without one do not load it."""
_TRIES_MAX: Final = 5
"""Greatest number of failed readings in a row. A reading fails if the thread that counts changes a container
meanwhile."""
_REQUEST_BYTES_MAX: Final = 8192
"""Greatest size of the head of an HTTP request. Scrapers of metrics send a few hundred bytes."""
_REQUEST_S: Final = 1.0
"""Longest time for one HTTP request. Requests are served one at a time, so a slow client must not delay the next for
longer."""
_RETRY_S: Final = 0.1
"""Pause after a failed `accept`, as when there are no more file descriptors."""


class Source(NamedTuple):
    """A session, a lane or a bus: its labels, and its statistics."""

    labels: Mapping[str, str]
    statistics: object


# Text.


def render(*things: object) -> str:
    """Return metrics in the Prometheus text format: those of the given sessions, connections and contexts, or of all in
    the process.

    Connections of one process to the same URI share a bus, and the metrics are those of the bus. A connection of
    `fjm2.jms` may be passed in its own event loop only. Without arguments, any thread may call this.
    """
    return _render([counted_of(thing) for thing in things] if things else None)


def counted_of(thing: object) -> object:
    """Return the object that has the counters of `thing`, such as the bus of a connection. Raise ConfigError if there
    is none."""
    found = getattr(thing, "counted", thing)
    if not _has_metrics(found):
        raise ConfigError(f"{thing!r}: expected a Session of fjm2.norm, a connection or a context")
    return found


def _render(things: list[Any] | None) -> str:
    """Return the metrics of those of `things` that are open; None stands for all that are open."""
    opened: list[Any] = [thing for thing in registered() if _has_metrics(thing)]
    shown = opened if things is None else [thing for thing in things if thing in opened]
    read = [_read(thing, opened) for thing in shown if thing.layer != _KEEPER]
    sessions = [source for _, found in read for source in found]
    buses = [bus for bus, _ in read if bus is not None]
    keepers = [
        (keeper.instruments, [Source({"keeper": keeper.name}, _statistics_of(keeper))])
        for keeper in shown
        if keeper.layer == _KEEPER
    ]
    return text(families(sessions, buses, keepers))


def _has_metrics(thing: object) -> bool:
    return hasattr(thing, "statistics") and getattr(thing, "layer", None) in ("norm", "jms", _KEEPER)


def _read(thing: Any, opened: list[Any]) -> tuple[Source | None, list[Source]]:
    """Return the bus, or None if `thing` is not a bus, and a list of its NORM sessions."""
    is_bus = thing.layer == "jms"
    place = thing.config if is_bus else thing.udp_config
    host = f"[{place.group}]" if ":" in place.group else place.group
    group = f"{host}:{place.port}"
    number = _number_of(thing, group, opened)
    suffix = f"-{number}" if number > 1 else ""
    label = partial(_labelled, group, suffix)
    statistics = _statistics_of(thing)
    if not is_bus:
        return None, [Source(label("session"), statistics)]
    bus: BusStatistics = statistics
    lanes = [Source(label(f"lane{lane}"), each) for lane, each in sorted(bus.lanes.items())]
    return Source(label("bus"), bus), lanes


def _labelled(group: str, suffix: str, source: str) -> Mapping[str, str]:
    return {"group": group, "source": source + suffix}


def _statistics_of(thing: Any) -> Any:
    for _ in range(_TRIES_MAX):
        with contextlib.suppress(RuntimeError):  # a container changed while it was being read
            return thing.statistics()
    return thing.statistics()


_numbers: WeakKeyDictionary[Any, tuple[str, int]] = WeakKeyDictionary()
_numbers_lock = threading.Lock()


def _number_of(thing: Any, group: str, opened: list[Any]) -> int:
    """Return the number that distinguishes `thing` from others of the same layer and group.

    It is the lowest number that no open thing has. Labels are thus used again, and there are few series in all.
    """
    kind = f"{thing.layer} {group}"
    with _numbers_lock:
        if thing not in _numbers:
            others = (_numbers[other] for other in opened if other in _numbers)
            taken = {number for other_kind, number in others if other_kind == kind}
            _numbers[thing] = kind, min(set(range(1, len(taken) + 2)) - taken)
        return _numbers[thing][1]


def families(
    sessions: Iterable[Source],
    buses: Iterable[Source],
    more: Iterable[tuple[Iterable[Instrument], Iterable[Source]]] = (),
) -> Iterator[Family]:
    """Return the families of all metrics that the lists of counters name: counters first, drops by reason last.

    `more` has further lists, and the sources that count by them.
    """
    yield Family("fjm2_info", "gauge", "Always 1.", [({"version": __version__}, 1)])
    lists = [(SESSION_INSTRUMENTS, sessions), (BUS_INSTRUMENTS, buses), *more]
    entries = [(one, sources) for instruments, sources in lists for one in instruments]
    for one, sources in sorted(entries, key=lambda entry: _place(entry[0])):
        if one.metric and one.field:
            yield Family(one.metric, one.kind, one.sentence, list(_samples(one, one.field, sources)))


def _place(one: Instrument) -> int:
    return 2 if one.label else 1 if one.kind == "gauge" else 0


def _samples(one: Instrument, field: str, sources: Iterable[Source]) -> Iterator[tuple[Mapping[str, str], float]]:
    for labels, statistics in sources:
        value = getattr(statistics, field)
        if one.label is None:
            yield labels, value
        else:
            for reason, count in sorted(value.items()):
                yield {**labels, one.label: reason}, count


# HTTP.


def serve_metrics(address: str = DEFAULT_ADDRESS, *things: object) -> "MetricsServer":
    """Serve the text of `render` at `http://ADDRESS/metrics`, until the server is closed or the program ends.

    Raises ConfigError for a malformed address, OSError if the kernel refuses it. Port 0 takes any free port. There is
    no authentication: whoever reaches the address can read the metrics, by default everyone on this host.
    """
    return MetricsServer(address, [counted_of(thing) for thing in things] if things else None)


class MetricsServer:
    """Server of metrics over HTTP. It answers in a thread of its own, one request at a time."""

    def __init__(self, address: str, things: list[Any] | None = None) -> None:
        """Use `serve_metrics` instead."""
        host, port = _parse(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics at {address}: {error.strerror}") from error
        found = self._listener.getsockname()
        self.address: str = f"[{found[0]}]:{found[1]}" if ":" in found[0] else f"{found[0]}:{found[1]}"
        """Address that the server listens on, HOST:PORT."""
        self._things = things
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="fjm2-metrics", daemon=True)
        self._thread.start()
        _sockets.update((self._listener, self._stop, self._stopped))

    def close(self) -> None:
        """Stop serving. Calling it twice does no harm."""
        self._stop.close()
        self._thread.join(_REQUEST_S)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        with self._stopped, selectors.DefaultSelector() as selector:
            for one in (self._listener, self._stopped):
                selector.register(one, selectors.EVENT_READ)
            while all(key.fileobj is not self._stopped for key, _ in selector.select()):
                try:
                    client, _ = self._listener.accept()
                except OSError:  # such as no more file descriptors
                    time.sleep(_RETRY_S)
                    continue
                with client, contextlib.suppress(OSError):  # the client is gone, or too slow
                    self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        head = _read_head(client)
        if head:
            client.settimeout(_REQUEST_S)
            client.sendall(self._answer(head))

    def _answer(self, head: str) -> bytes:
        lines = head.split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response("400 Bad Request", "expected HTTP/1.1\n")
        if words[0] not in ("GET", "HEAD"):
            return _response("405 Method Not Allowed", "expected GET\n")
        if not self._is_for_here(lines[1:]):
            return _response("403 Forbidden", "expected this host's own name or address as Host\n")
        if words[1].partition("?")[0] != "/metrics":
            return _response("404 Not Found", "expected /metrics\n")
        try:
            body = _render(self._things)
        except Exception as error:
            return _response("500 Internal Server Error", f"{error!r}\n")
        return _response("200 OK", body, is_head=words[0] == "HEAD")

    def _is_for_here(self, headers: list[str]) -> bool:
        """Return False if the server is local and the client used a foreign name for it, as in a DNS rebinding attack.

        In such an attack, the name of another host is made to resolve to this one. A web page of the other host could
        then read through a browser what only this host may read.
        """
        if not _is_local(self._listener.getsockname()[0]):
            return True
        fields = [line.partition(":") for line in headers]
        return all(_is_local(_host_of(value.strip())) for name, _, value in fields if name.strip().lower() == "host")


def _read_head(client: socket.socket) -> str:
    """Return the head of an HTTP request. Return an empty string if it is too long, or takes too long to arrive."""
    head, deadline = b"", time.monotonic() + _REQUEST_S
    while b"\r\n\r\n" not in head:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or len(head) > _REQUEST_BYTES_MAX:
            return ""
        client.settimeout(left_s)
        more = client.recv(_REQUEST_BYTES_MAX)
        if not more:
            return ""
        head += more
    return head.decode("latin-1")


def _response(status: str, body: str, *, is_head: bool = False) -> bytes:
    content = body.encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(content)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if is_head else content)


def _parse(address: str) -> tuple[str, int]:
    """Return the host and the port of an address HOST:PORT. Without a host, it is the loopback address."""
    host, _, port = address.strip().rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65_535
    if not (is_port and host.isprintable()):
        raise ConfigError(f"address={address!r}: expected HOST:PORT, such as {DEFAULT_ADDRESS}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def _host_of(value: str) -> str:
    return value.partition("]")[0].removeprefix("[") if value.startswith("[") else value.partition(":")[0]


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:  # not an address but a name
        return host.lower() == "localhost"


# The environment.

_sockets: WeakSet[socket.socket] = WeakSet()
"""Sockets of all servers of this process."""
_of_environment: MetricsServer | None = None
_environment_lock = threading.Lock()


def serve_environment() -> None:
    """Serve metrics at the address in FJM2_METRICS, unless this process already does. Raises what `serve_metrics`
    raises."""
    global _of_environment
    with _environment_lock:
        if _of_environment is None:
            _of_environment = serve_metrics(os.environ[METRICS_VARIABLE])


def _after_fork() -> None:
    """Forget the parent's servers in a forked child: their threads are gone, and the addresses are the parent's."""
    global _of_environment, _environment_lock, _numbers_lock
    for one in list(_sockets):
        one.close()  # otherwise the parent's `close` would not wake the parent's thread
    _sockets.clear()
    _of_environment = None
    _environment_lock, _numbers_lock = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
