"""Metrics for Prometheus: what all sessions and buses of the process count, as text and over HTTP.

`render()` gives the text, to be mounted in any web application. `serve_metrics()` serves it at `/metrics`, from a
thread of its own; FJM2_METRICS=127.0.0.1:9464 in the environment does so for any program. Nothing is counted for it
that is not counted anyway, and nothing is read before somebody asks.
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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from weakref import WeakKeyDictionary, WeakSet

from fjm2.base.version import __version__

from .base.errors import ConfigError
from .base.exposition import CONTENT_TYPE, Family, text
from .base.readings import METRICS_VARIABLE, registered

if TYPE_CHECKING:
    from .bus.statistics import BusStatistics

__all__ = ["CONTENT_TYPE", "DEFAULT_ADDRESS", "MetricsServer", "render", "serve_metrics"]

DEFAULT_ADDRESS: Final = "127.0.0.1:9464"
"""Where metrics are served if nothing else is said."""
_TRIES: Final = 5
"""What counts goes on in its own thread: a reading may meet a change."""
_REQUEST_BYTES_MAX: Final = 8192
_REQUEST_S: Final = 1.0
"""Requests are served one at a time: no client holds up the next for longer."""
_RETRY_S: Final = 0.1

_Row = tuple[str, str, str]
"""Name of the metric, of the field, and what is told."""

SESSION_COUNTERS: Final[tuple[_Row, ...]] = (
    ("sent_datagrams", "datagrams_sent", "Datagrams sent, of all kinds."),
    ("sent_bytes", "bytes_sent", "Bytes of NORM messages sent, without UDP and IP headers."),
    ("received_datagrams", "datagrams_received", "Datagrams received, those dropped included."),
    ("received_bytes", "bytes_received", "Bytes of NORM messages received, without UDP and IP headers."),
    ("sent_segments", "segments_sent", "Source segments sent, the first time each."),
    ("sent_payload_bytes", "payload_bytes_sent", "Application bytes sent, the first time each."),
    ("sent_messages", "messages_sent", "Messages sent."),
    ("sent_objects", "objects_sent", "Objects of which every segment has been sent once."),
    ("received_objects", "objects_received", "Objects that arrived complete."),
    ("lost_objects", "objects_lost", "Objects, or parts of streams, given up."),
    ("received_payload_bytes", "payload_bytes_received", "Application bytes handed up."),
    ("lost_bytes", "bytes_lost", "Bytes of streams that will not be handed up."),
    ("received_duplicate_segments", "duplicate_segments_received", "Segments that were there already."),
    ("decoded_segments", "segments_decoded", "Source segments made from parity."),
    ("sent_nacks", "nacks_sent", "Requests for repair sent."),
    ("suppressed_nacks", "nacks_suppressed", "Requests for repair not sent, as others had said it all."),
    ("received_nacks", "nacks_received", "Requests for repair received."),
    ("sent_acks", "acks_sent", "Confirmations sent."),
    ("received_acks", "acks_received", "Confirmations received."),
    ("sent_repair_segments", "repair_segments_sent", "Source segments sent again."),
    ("sent_parity_segments", "parity_segments_sent", "Parity segments sent."),
    ("sent_flushes", "flushes_sent", "Commands sent by which receivers learn what they miss."),
    ("sent_squelches", "squelches_sent", "Answers that what was asked for is not held any more."),
    ("sent_probes", "probes_sent", "Commands sent by which round trips are measured."),
    ("window_waits", "window_waits", "Times that a writer found no room."),
    ("send_errors", "send_errors", "Sends that the kernel refused."),
    ("blocked_sends", "sends_blocked", "Times that the kernel was full, and was waited for."),
    ("kernel_drops", "kernel_drops", "Datagrams that found the sockets' buffers full."),
)
SESSION_GAUGES: Final[tuple[_Row, ...]] = (
    ("grtt_seconds", "grtt_s", "Greatest round-trip time of the group, as the sender estimates it."),
    ("queue_bytes", "queue_bytes", "Written, and without a place in the sender's buffer yet."),
    ("waiting_events", "events_waiting", "Events received, and not taken yet."),
    ("waiting_event_bytes", "events_waiting_bytes", "What these events hold."),
    ("receivers", "receivers", "Nodes that flow control waits for."),
    (
        "evicted_receivers",
        "receivers_evicted",
        "Nodes that it waited for in vain, and that have not come back.",
    ),
    ("paused", "is_paused", "1 if nothing is received until the application takes events."),
    ("down", "is_down", "1 if there is no way out, as the interface is down."),
    ("warnings", "warnings", "Things that the operator of the host should put right."),
)
BUS_COUNTERS: Final[tuple[_Row, ...]] = (
    ("received_messages", "frames_received", "Messages that came from other processes, wanted here or not."),
    ("delivered_messages", "deliveries", "Messages given to consumers: one that goes to two counts twice."),
    ("dropped_messages", "messages_dropped", "Messages dropped by consumers that were full."),
    ("expired_messages", "frames_expired", "Messages that were too old when they came."),
    ("malformed_messages", "frames_malformed", "Messages that could not be read."),
    ("cut_streams", "streams_cut", "Times that a sender's stream had to start over."),
    ("refused_announcements", "announcements_refused", "What others said of themselves that makes no sense."),
    ("suppressed_reports", "reports_suppressed", "Problems not told of, as there were too many in a second."),
)
BUS_GAUGES: Final[tuple[_Row, ...]] = (
    ("connections", "connections", "Connections of this process."),
    ("peers", "peers", "Connections of other processes that are known."),
    ("held_transactions", "transactions_held", "Transactions that have begun, and are not complete yet."),
    ("consumers", "consumers", "Consumers of this process."),
    ("full_consumers", "consumers_full", "Consumers that hold the senders back."),
    ("held_messages", "messages_held", "Messages held by consumers: waiting, or not acknowledged."),
    ("held_bytes", "held_bytes", "Likewise in bytes."),
)
"""What a bus has besides its lanes; how many messages were sent is the sum of theirs."""


class _Source(NamedTuple):
    """Something that counts, and its labels."""

    labels: Mapping[str, str]
    statistics: Any


# Text.


def render(*things: object) -> str:
    """The text that Prometheus reads: of sessions, connections and contexts; if none are given, of all in the process.

    Connections of one process to the same URI share a bus, which is what is told of. A connection of `fjm2.jms` is to
    be given in its own event loop; without arguments it may be called from anywhere.
    """
    return _render([counted_of(thing) for thing in things] if things else None)


def counted_of(thing: object) -> object:
    """What counts for it, as the bus for a connection. ConfigError if nothing does."""
    found = getattr(thing, "counted", thing)
    if not _is_told_of(found):
        raise ConfigError(f"{thing!r}: expected a Session of fjm2.norm, a connection or a context")
    return found


def _render(things: list[Any] | None) -> str:
    """What is closed counts no more."""
    opened = [thing for thing in registered() if _is_told_of(thing)]
    told = opened if things is None else [thing for thing in things if thing in opened]
    read = [_read(thing, opened) for thing in told]
    sessions = [source for _, found in read for source in found]
    buses = [bus for bus, _ in read if bus is not None]
    return text(_families(sessions, buses))


def _is_told_of(thing: object) -> bool:
    return hasattr(thing, "statistics") and getattr(thing, "layer", None) in ("norm", "jms")


def _read(thing: Any, opened: list[Any]) -> tuple[_Source | None, list[_Source]]:
    """A bus, if it is one, and the NORM sessions."""
    is_bus = thing.layer == "jms"
    place = thing.config if is_bus else thing.udp_config
    host = f"[{place.group}]" if ":" in place.group else place.group
    group = f"{host}:{place.port}"
    number = _number_of(thing, group, opened)
    suffix = f"-{number}" if number > 1 else ""
    label = partial(_labelled, group, suffix)
    statistics = _statistics_of(thing)
    if not is_bus:
        return None, [_Source(label("session"), statistics)]
    bus: BusStatistics = statistics
    lanes = [_Source(label(f"lane{lane}"), each) for lane, each in sorted(bus.lanes.items())]
    return _Source(label("bus"), bus), lanes


def _labelled(group: str, suffix: str, source: str) -> Mapping[str, str]:
    return {"group": group, "source": source + suffix}


def _statistics_of(thing: Any) -> Any:
    for _ in range(_TRIES):
        with contextlib.suppress(RuntimeError):  # something was changed just then
            return thing.statistics()
    return thing.statistics()


_numbers: WeakKeyDictionary[Any, tuple[str, int]] = WeakKeyDictionary()
_numbers_lock = threading.Lock()


def _number_of(thing: Any, group: str, opened: list[Any]) -> int:
    """Which it is of those of its kind and group: the lowest number that no other has, so that there are few in all."""
    kind = f"{thing.layer} {group}"
    with _numbers_lock:
        if thing not in _numbers:
            others = (_numbers[other] for other in opened if other in _numbers)
            taken = {number for other_kind, number in others if other_kind == kind}
            _numbers[thing] = kind, min(set(range(1, len(taken) + 2)) - taken)
        return _numbers[thing][1]


def _families(sessions: list[_Source], buses: list[_Source]) -> Iterator[Family]:
    yield Family("fjm2_info", "gauge", "Always 1.", [({"version": __version__}, 1)])
    yield from _table(SESSION_COUNTERS, sessions, is_counter=True)
    yield from _table(BUS_COUNTERS, buses, is_counter=True)
    yield from _table(SESSION_GAUGES, sessions)
    yield from _table(BUS_GAUGES, buses)
    told = "Datagrams received, and not acted on, by reason."
    yield Family("fjm2_drops_total", "counter", told, list(_by_reason(sessions, "drops")))
    told = "What came on streams and was no message, by reason."
    yield Family("fjm2_frame_drops_total", "counter", told, list(_by_reason(buses, "frame_drops")))


def _table(rows: Iterable[_Row], sources: list[_Source], *, is_counter: bool = False) -> Iterator[Family]:
    for name, field, told in rows:
        samples = [(labels, getattr(statistics, field)) for labels, statistics in sources]
        if is_counter:
            yield Family(f"fjm2_{name}_total", "counter", told, samples)
        else:
            yield Family(f"fjm2_{name}", "gauge", told, samples)


def _by_reason(sources: list[_Source], field: str) -> Iterator[tuple[Mapping[str, str], float]]:
    for labels, statistics in sources:
        for reason, count in sorted(getattr(statistics, field).items()):
            yield {**labels, "reason": reason}, count


# HTTP.


def serve_metrics(address: str = DEFAULT_ADDRESS, *things: object) -> "MetricsServer":
    """Serve at `http://ADDRESS/metrics` what `render` gives, until the server is closed or the program ends.

    ConfigError if it is no address, OSError if the kernel refuses it. Port 0 is any that is free. Whoever reaches the
    address can read it: by default, those on this host.
    """
    return MetricsServer(address, [counted_of(thing) for thing in things] if things else None)


class MetricsServer:
    """Answers in a thread of its own, one request at a time."""

    def __init__(self, address: str, things: list[Any] | None = None) -> None:
        """For `serve_metrics`."""
        host, port = _parse(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise OSError(error.errno, f"cannot serve metrics at {address}: {error.strerror}") from error
        found = self._listener.getsockname()
        self.address: str = f"[{found[0]}]:{found[1]}" if ":" in found[0] else f"{found[0]}:{found[1]}"
        """Where it listens, HOST:PORT."""
        self._things = things
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="fjm2-metrics", daemon=True)
        self._thread.start()
        _servers.add(self)

    def close(self) -> None:
        """Twice does no harm."""
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
                except OSError:  # no more file numbers, or the like
                    time.sleep(_RETRY_S)
                    continue
                with client, contextlib.suppress(OSError):  # who is gone, or too slow
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
        """No page of another name, made to resolve to this host, may have a browser ask for what only this host may."""
        if not _is_local(self._listener.getsockname()[0]):
            return True
        fields = [line.partition(":") for line in headers]
        return all(_is_local(_host_of(value.strip())) for name, _, value in fields if name.strip().lower() == "host")


def _read_head(client: socket.socket) -> str:
    """Of a request, or nothing if it is too long in coming."""
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
    """Host and port. Without a host it is this one's loopback address."""
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
    except ValueError:  # a name
        return host.lower() == "localhost"


# The environment.

_servers: WeakSet[MetricsServer] = WeakSet()
_of_environment: MetricsServer | None = None
_environment_lock = threading.Lock()


def serve_environment() -> None:
    """Serve where the environment's FJM2_METRICS says, once in a process. Raises what `serve_metrics` raises."""
    global _of_environment
    with _environment_lock:
        if _of_environment is None:
            _of_environment = serve_metrics(os.environ[METRICS_VARIABLE])


def _after_fork() -> None:
    """In the child: the thread is gone, and the place is the parent's."""
    global _of_environment, _environment_lock, _numbers_lock
    for server in list(_servers):
        for one in (server._listener, server._stop, server._stopped):
            one.close()  # else the parent's thread would not see its own close
    _servers.clear()
    _of_environment = None
    _environment_lock, _numbers_lock = threading.Lock(), threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
