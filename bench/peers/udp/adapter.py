"""Bare UDP from Python: what the network can do without a protocol. Losses are counted and not repaired.

A message is one datagram if it fits. Otherwise messages are laid end to end and cut into numbered pieces. The publisher
repeats the last message until all subscribers have confirmed it.
"""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...workload.messages import Expected, Maker
from ...workload.reception import Reception, messages_at_once
from ...workload.results import (
    EchoResult,
    PingResult,
    PubResult,
    StopWatch,
    SubResult,
    ping_result,
    print_ready,
    pub_result,
)
from ..base import HELLO_INTERVAL_S, Deadline, PeerOptions, end_message, messages_to_send, total_of

DATAGRAM_BYTES_MAX = 65_507
"""Longest payload of UDP over IPv4."""
_SEGMENT_BYTES = 1472
"""Length of a datagram that fills a packet of 1,500 bytes."""
_SEGMENTS_A_TRAIN = 44
"""Segments that fit into one system call of 64 KiB."""
_NUMBER_BYTES = 8
_UDP_SEGMENT, _UDP_GRO = 103, 104
"""Socket options of <linux/udp.h> that Python does not name."""
_SO_RCVBUFFORCE = 33
"""Socket option of <asm-generic/socket.h> that Python does not name."""
_RECEIVE_BUFFER_BYTES = 32 << 20
"""Size of a subscriber's receive buffer: the same as that of the other peers."""
_TICK_S = 0.1
"""Interval at which a wait checks its deadline."""
_END_INTERVAL_S = 0.01
"""Time between two repetitions of the last message."""
_LOST_AFTER_S = 0.2
"""Time after which a ping gives a message up. Round trips take less than a millisecond."""
_LINGER_S = 0.1
"""Time for which a subscriber repeats its confirmation, which may be lost as well."""
_HELLO, _DONE = b"hello", b"done"

Address = tuple[str, int]


class Udp:
    """The adapter of bare UDP."""

    def __init__(self, name: str, settings: str, *, is_multicast: bool, has_trains: bool = False) -> None:
        self.name = name
        self.settings = settings
        self._is_multicast = is_multicast
        self._has_trains = has_trains

    def missing(self) -> str | None:
        return None

    def pub(self, options: PeerOptions) -> PubResult:
        deadline = Deadline(options.timeout_s)
        with _bound((options.publisher, options.port + 1)) as answers:
            subscribers = _await_words(options.receivers, _HELLO, answers, deadline, "subscribers")
            with self._outlets(options, subscribers) as outlets:
                watch = StopWatch()
                if self._piece_bytes(options.size):
                    total = self._send_pieces(options, outlets, deadline)
                else:
                    total = self._send_messages(options, outlets, deadline)
                result = pub_result(
                    system=self.name,
                    form="datagram",
                    size=options.size,
                    messages=total,
                    watch=watch,
                    receivers=options.receivers,
                )
                confirmed: set[Address] = set()
                while len(confirmed) < options.receivers:
                    for outlet in outlets:
                        with suppress(ConnectionRefusedError):  # a subscriber that has confirmed is gone
                            outlet.send(end_message(total))
                    confirmed |= _receive_word(_DONE, answers, _END_INTERVAL_S)
                    deadline.check(f"waiting for confirmations, {len(confirmed)} of {options.receivers} are there")
        return result

    def sub(self, options: PeerOptions) -> SubResult:
        deadline = Deadline(options.timeout_s)
        reception = Reception(self.name, options.size, is_verified=options.is_verified)
        reception.begin(0)
        with self._inlet(options) as inlet, self._announcement_socket(inlet) as announcer:
            print_ready(as_json=True)
            self._announce(inlet, announcer, options, deadline)
            if piece_bytes := self._piece_bytes(options.size):
                self._receive_pieces(reception, inlet, piece_bytes, deadline)
            else:
                self._receive_messages(reception, inlet, deadline)
            until = time.monotonic() + _LINGER_S
            while reception.is_ended and time.monotonic() < until:
                announcer.sendto(_DONE, (options.publisher, options.port + 1))
                time.sleep(_LINGER_S / 10)
        return reception.result()

    def ping(self, options: PeerOptions) -> PingResult:
        deadline = Deadline(options.timeout_s)
        maker = Maker(options.size)
        times = []
        _check_fits(options.size)
        with _bound((options.publisher, options.port + 1)) as answers:
            echoes = _await_words(1, _HELLO, answers, deadline, "an echo")
            with self._outlets(options, echoes) as (outlet,):
                for _ in range(options.warm_up + (options.count or 1)):
                    message = maker.batch(1)
                    answers.settimeout(_LOST_AFTER_S)
                    start = time.perf_counter_ns()
                    outlet.send(message)
                    with suppress(TimeoutError):
                        while answers.recv(DATAGRAM_BYTES_MAX) != message:  # an announcement, or a late message
                            pass
                        times.append(time.perf_counter_ns() - start)
                    deadline.check("waiting for messages to come back")
                outlet.send(end_message(maker.next_number))
        return ping_result(self.name, options.size, times[options.warm_up :])

    def echo(self, options: PeerOptions) -> EchoResult:
        deadline = Deadline(options.timeout_s)
        count = 0
        with self._inlet(options) as inlet, self._announcement_socket(inlet) as announcer:
            print_ready(as_json=True)
            self._announce(inlet, announcer, options, deadline)
            while not deadline.is_over:
                with suppress(TimeoutError):
                    message = inlet.recv(DATAGRAM_BYTES_MAX)
                    if total_of(message) is not None:
                        break
                    announcer.sendto(message, (options.publisher, options.port + 1))
                    count += 1
        return EchoResult(system=self.name, messages=count)

    def _piece_bytes(self, size: int) -> int:
        """Return the content of a piece in bytes; 0 if messages are not cut."""
        if self._has_trains:
            return _SEGMENT_BYTES - _NUMBER_BYTES
        return 0 if size <= DATAGRAM_BYTES_MAX else DATAGRAM_BYTES_MAX - _NUMBER_BYTES

    @contextmanager
    def _outlets(self, options: PeerOptions, subscribers: set[Address]) -> Iterator[list[socket.socket]]:
        """Open sockets to send through: by multicast one for all subscribers, by unicast one for each."""
        group = {(options.group, options.port)} if self._is_multicast else subscribers
        outlets = [_socket() for _ in group]
        try:
            for outlet, address in zip(outlets, group, strict=True):
                if self._is_multicast:
                    is_local = ip_address(options.publisher).is_loopback
                    outlet.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(options.publisher))
                    outlet.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0 if is_local else 1)
                    outlet.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, is_local)
                if self._has_trains:
                    outlet.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, _SEGMENT_BYTES)
                outlet.connect(address)
            yield outlets
        finally:
            for outlet in outlets:
                outlet.close()

    def _send_messages(self, options: PeerOptions, outlets: list[socket.socket], deadline: Deadline) -> int:
        maker = Maker(options.size)
        sends = [outlet.send for outlet in outlets]
        for messages in messages_to_send(options, maker):
            for message in messages:
                for send in sends:
                    send(message)
            deadline.check("sending")
        return maker.next_number

    def _send_pieces(self, options: PeerOptions, outlets: list[socket.socket], deadline: Deadline) -> int:
        size, piece = options.size, self._piece_bytes(options.size)
        at_once = _SEGMENTS_A_TRAIN if self._has_trains else 1
        until = time.perf_counter() + (options.seconds or 0.0)
        end = None if options.count is None else options.count * size
        expected = Expected(size)
        train = np.zeros((at_once, _NUMBER_BYTES + piece), np.uint8)
        numbers, contents = train[:, :_NUMBER_BYTES].view(">u8")[:, 0], train[:, _NUMBER_BYTES:]
        first = np.arange(at_once)
        at = 0
        while end is None or at < end:
            if end is None and time.perf_counter() >= until:
                end = -(-at // size) * size  # the current message is the last one
                continue
            length = at_once * piece if end is None else min(at_once * piece, end - at)
            content = expected.piece(at // size, at % size, length)
            whole, rest = divmod(length, piece)
            contents[:whole] = content[: whole * piece].reshape(whole, piece)
            contents[whole : whole + 1, :rest] = content[whole * piece :]
            numbers[:] = first + at // piece
            count = whole + (rest > 0)
            data = train.reshape(-1)[: count * train.shape[1] - (piece - rest if rest else 0)]
            for outlet in outlets:
                outlet.send(data.data)
            at += length
            deadline.check("sending")
        return at // size

    def _announce(
        self, inlet: socket.socket, announcer: socket.socket, options: PeerOptions, deadline: Deadline
    ) -> None:
        """Announce the subscriber until there is something to receive."""
        inlet.settimeout(HELLO_INTERVAL_S)
        while not deadline.is_over:
            announcer.sendto(_HELLO, (options.publisher, options.port + 1))
            with suppress(TimeoutError, ConnectionRefusedError):
                inlet.recv(1, socket.MSG_PEEK)
                break
        inlet.settimeout(_TICK_S)

    def _receive_messages(self, reception: Reception, inlet: socket.socket, deadline: Deadline) -> None:
        receive = inlet.recv
        at_once = messages_at_once(reception.size)
        while not reception.is_ended and not deadline.is_over:
            messages: list[bytes] = []
            with suppress(TimeoutError):
                while len(messages) < at_once:
                    message = receive(DATAGRAM_BYTES_MAX)
                    if (total := total_of(message)) is not None:
                        reception.total, reception.is_ended = total, True
                        break
                    messages.append(message)
            if messages:
                reception.take_many(messages)

    def _receive_pieces(self, reception: Reception, inlet: socket.socket, piece: int, deadline: Deadline) -> None:
        buffer = np.zeros(1 << 16, np.uint8)
        next_number = 0
        while not reception.is_ended and not deadline.is_over:
            try:
                length, ancillary, _, _ = inlet.recvmsg_into([buffer.data], 64)
            except TimeoutError:
                continue
            total = total_of(buffer[:length].tobytes()) if length < _SEGMENT_BYTES else None
            if total is not None:
                reception.total, reception.is_ended = total, True
                return
            # The kernel may hand over several datagrams that arrived one after another, and then says how long each is.
            step = struct.unpack("i", ancillary[0][2][:4])[0] if ancillary else length
            for start, end, number in _runs(buffer[:length], step):
                if number != next_number:
                    reception.skip_to(number * piece)
                count = -(-(end - start) // step)
                whole = buffer[start : start + (end - start) // step * step].reshape(-1, step)[:, _NUMBER_BYTES:]
                rest = buffer[start + whole.shape[0] * step + _NUMBER_BYTES : end]
                reception.take(whole.tobytes() + rest.tobytes())
                next_number = number + count

    @contextmanager
    def _inlet(self, options: PeerOptions) -> Iterator[socket.socket]:
        inlet = _socket()
        with inlet:
            try:
                inlet.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER_BYTES)
            except PermissionError:
                inlet.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
            if self._has_trains:
                inlet.setsockopt(socket.IPPROTO_UDP, _UDP_GRO, 1)
            if self._is_multicast:
                inlet.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                inlet.bind((options.group, options.port))
                inlet.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, _membership(options))
            else:
                inlet.bind(("", 0))
            yield inlet

    @contextmanager
    def _announcement_socket(self, inlet: socket.socket) -> Iterator[socket.socket]:
        """Yield the socket that sends announcements. By unicast, it is the socket that receives messages."""
        if not self._is_multicast:
            yield inlet
            return
        with _socket() as announcer:
            yield announcer


def _runs(data: NDArray[np.uint8], step: int) -> Iterator[tuple[int, int, int]]:
    """Yield the bounds of runs of pieces with consecutive numbers, and the number of each run's first piece."""
    numbers = np.ndarray((-(-data.size // step),), ">u8", data.data, strides=(step,)).astype(np.int64)
    bounds = [0, *(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
    for low, high in pairwise(bounds):
        yield low * step, min(high * step, data.size), int(numbers[low])


def _socket() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@contextmanager
def _bound(address: Address) -> Iterator[socket.socket]:
    with _socket() as made:
        made.bind(address)
        yield made


def _membership(options: PeerOptions) -> bytes:
    """Return an `ip_mreqn` with the interface by its address or by its name."""
    try:
        address, index = socket.inet_aton(options.interface), 0
    except OSError:
        address, index = bytes(4), socket.if_nametoindex(options.interface)
    return struct.pack("@4s4si", socket.inet_aton(options.group), address, index)


def _await_words(count: int, word: bytes, inlet: socket.socket, deadline: Deadline, what: str) -> set[Address]:
    """Wait until `count` processes have sent a word, and return their addresses."""
    seen: set[Address] = set()
    while len(seen) < count:
        seen |= _receive_word(word, inlet, _TICK_S)
        deadline.check(f"waiting for {what}, {len(seen)} of {count} are there")
    return seen


def _receive_word(word: bytes, inlet: socket.socket, seconds: float) -> set[Address]:
    """Return the address of the next datagram if it arrives in time and contains the word; otherwise an empty set."""
    inlet.settimeout(seconds)
    with suppress(TimeoutError):
        said, address = inlet.recvfrom(64)
        if said == word:
            return {address}
    return set()


def _check_fits(size: int) -> None:
    if size > DATAGRAM_BYTES_MAX:
        raise OSError(f"messages of {size} B: expected at most {DATAGRAM_BYTES_MAX} B, which fit into a datagram")
