"""Cyclone DDS in Python: reliable multicast of samples that are plain bytes."""

import ipaddress
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any
from xml.sax.saxutils import quoteattr

from .base import Deadline, PeerOptions
from .polling import PolledPeer, Role, Topic

_SAMPLES_A_TURN = 256
"""Maximum number of samples read in one call: more of them only use memory."""
_LOOPBACK = ("lo", "127.0.0.1", "::1")
_CDR_LITTLE_ENDIAN = b"\0\1\0\0"
_PREFIX_BYTES = len(_CDR_LITTLE_ENDIAN) + 4
"""Bytes before the content of an encoded sample: the encoding and the length."""
_SMALL_SEGMENT_BYTES = 1428
"""Longest segment size for which datagrams are limited to one packet."""
_CLOSE_NS = 1_000_000_000
"""Longest time to wait for acknowledgements when closing."""


class CycloneDds(PolledPeer):
    """Adapter of Cyclone DDS."""

    name = "cyclonedds"
    settings = (
        "Reliable, KEEP_ALL on both sides, volatile, multicast on one interface; datagrams of up to 65,500 B, which "
        "IP fragments (1,344 B where packets are lost), socket buffers of up to 32 MiB; the writer blocks at 8 MiB "
        "of unacknowledged messages. Samples are sequences of octets, encoded by hand, because the Python "
        "serialiser processes them byte by byte."
    )
    is_windowed = False

    def missing(self) -> str | None:
        return None if find_spec("cyclonedds") else "cyclonedds is not installed"

    @contextmanager
    def link(self, options: PeerOptions, deadline: Deadline, role: Role) -> Iterator["_Link"]:  # noqa: ARG002
        link = _Link(options, deadline)
        try:
            yield link
        finally:
            link.close()


class _Link:
    """A participant with a writer for each topic, and readers for the topics that are listened to."""

    def __init__(self, options: PeerOptions, deadline: Deadline) -> None:
        from cyclonedds.core import WaitSet
        from cyclonedds.domain import Domain, DomainParticipant
        from cyclonedds.pub import DataWriter
        from cyclonedds.qos import Policy, Qos
        from cyclonedds.topic import Topic as DdsTopic
        from cyclonedds.util import duration

        self._receivers = max(1, options.receivers)
        self._deadline = deadline
        self._body = _body_type()
        self._domain = Domain(0, _configuration(options))
        self._participant = DomainParticipant(0)
        self._qos = Qos(
            Policy.Reliability.Reliable(max_blocking_time=duration(seconds=options.timeout_s)),
            Policy.History.KeepAll,
            Policy.Durability.Volatile,
        )
        self._topics = {topic: DdsTopic(self._participant, topic.value, self._body, qos=self._qos) for topic in Topic}
        self._writers = {topic: DataWriter(self._participant, of, qos=self._qos) for topic, of in self._topics.items()}
        self._readers: list[tuple[Any, Callable[[bytes], object]]] = []
        self._waits = WaitSet(self._participant)

    def listen(self, topic: Topic, take: Callable[[bytes], object]) -> None:
        from cyclonedds.core import InstanceState, ReadCondition, SampleState, ViewState
        from cyclonedds.sub import DataReader

        reader = DataReader(self._participant, self._topics[topic], qos=self._qos)
        self._waits.attach(ReadCondition(reader, SampleState.Any | ViewState.Any | InstanceState.Any))
        self._readers.append((reader, take))

    def publisher(self, topic: Topic) -> Callable[[bytes | memoryview], object]:
        writer, body = self._writers[topic], self._body
        is_reached = topic is Topic.REPORTS  # reports are repeated

        def publish(message: bytes | memoryview) -> None:
            nonlocal is_reached
            if not is_reached:
                self._await_readers(writer)
                is_reached = True
            writer.write(body(message))

        return publish

    def _await_readers(self, writer: Any) -> None:
        """Wait until all readers are found. A reader does not receive samples written before it was found."""
        while len(writer.get_matched_subscriptions()) < self._receivers:
            self._deadline.check("waiting for the readers to be found")
            self.poll(0.01)

    def poll(self, seconds: float) -> None:
        is_idle = True
        for reader, take in self._readers:
            for sample in reader.take(_SAMPLES_A_TURN):
                is_idle = False
                if isinstance(sample, _Received):
                    take(sample.content)
        if is_idle and seconds:
            self._waits.wait(int(seconds * 1e9))

    def is_written(self) -> bool:
        return True  # a write waits by itself until there is room

    def close(self) -> None:
        """Close after the readers have acknowledged all samples, or are gone."""
        for writer in self._writers.values():
            with suppress(AttributeError):  # the binding fails on its own time-out
                writer.wait_for_acks(_CLOSE_NS)


class _Received:
    """A received sample. The reader sets `sample_info`."""

    __slots__ = ("content", "sample_info")

    def __init__(self, encoded: bytes) -> None:
        end = _PREFIX_BYTES + int.from_bytes(encoded[_PREFIX_BYTES - 4 : _PREFIX_BYTES], "little")
        self.content = encoded[_PREFIX_BYTES:end]


def _body_type() -> Any:
    """Return the type of samples. It encodes itself, and is decoded to `_Received` without parsing."""
    from cyclonedds.idl import make_idl_struct
    from cyclonedds.idl.types import sequence, uint8

    def encoded(body: Any, **_: object) -> bytes:
        return b"%b%b%b" % (_CDR_LITTLE_ENDIAN, len(body.content).to_bytes(4, "little"), body.content)

    octets: Any = sequence
    body_type: Any = make_idl_struct("Body", "fjm2bench.Body", {"content": octets[uint8]})
    body_type.serialize = encoded
    body_type.deserialize = _Received
    return body_type


def _configuration(options: PeerOptions) -> str:
    is_local = options.interface in _LOOPBACK
    try:
        which = f"address={quoteattr(str(ipaddress.ip_address(options.interface)))}"
    except ValueError:
        which = f"name={quoteattr(options.interface)}"
    sizes = "<MaxMessageSize>65500B</MaxMessageSize><FragmentSize>65000B</FragmentSize>"
    return (
        f"<General><Interfaces><NetworkInterface {which} multicast='true'/></Interfaces>"
        f"<AllowMulticast>true</AllowMulticast><MulticastTimeToLive>{0 if is_local else 1}</MulticastTimeToLive>"
        f"{'' if options.segment_bytes <= _SMALL_SEGMENT_BYTES else sizes}</General>"
        f"<Discovery><Tag>fjm2bench-{options.port}</Tag><ParticipantIndex>none</ParticipantIndex>"
        f"<SPDPMulticastAddress>{options.group}</SPDPMulticastAddress>"
        f"<DefaultMulticastAddress>{options.group}</DefaultMulticastAddress>"
        f"<SPDPInterval>500ms</SPDPInterval>"
        f"<Ports><Base>{options.port}</Base><DomainGain>0</DomainGain></Ports></Discovery>"
        "<Internal><SocketReceiveBufferSize max='32MiB'/><SocketSendBufferSize max='8MiB'/>"
        "<Watermarks><WhcHigh>8MiB</WhcHigh></Watermarks></Internal>"
    )


PEER = CycloneDds()
