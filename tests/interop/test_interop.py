"""Tests of FJM2 and libnorm as each other's sender and receiver, over a lossy link.

Cases named `libnorm_alone` are the control group: a failure there is caused by libnorm or by the tests themselves.
"""

import itertools
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pytest
from _pytest.mark import ParameterSet
from netns_pair import Namespace, Network, Process, until

pytestmark = pytest.mark.root

GROUP, PORT = "239.255.41.8", 6003
SENDER_NODE, ABSENT_NODE = 1, 99
RATE = 20_000_000
SLOW_RATE = 1_500_000
SEGMENT_SIZE = 1024
# A receiver begins with the first data that arrives, so a sender's first segments must not be lost.
LOSSLESS_BYTES = 2500
RECEIVE_TIMEOUT_S = 45
SEND_TIMEOUT_S = 60.0

CHATTER = Path(__file__).with_name("ack_chatter.py")
CHATTER_ACKS = 50

LIBNORM, FJM2 = "libnorm", "fjm2"
# Pairs of sender and receiver: each program with the other, and libnorm alone.
PAIRS = [(LIBNORM, FJM2), (FJM2, LIBNORM), (LIBNORM, LIBNORM)]
CHATTER_PAIRS = [(LIBNORM, (FJM2,)), (FJM2, (LIBNORM,)), (LIBNORM, (LIBNORM,))]
DATA, FILE, STREAM = "data", "file", "stream"
CONTENTS = [DATA, FILE, STREAM]
FECS = {"none": (32, 0, 0), "rs8": (32, 8, 0), "rs8auto2": (32, 8, 2)}
"""Block size, number of parity segments, and number of parity segments sent at once, by name."""
LOSSES = [0.0, 0.05, 0.2]
NACKS = ["multicast", "unicast"]


@cache
def objects(count: int, size: int) -> dict[str, bytes]:
    """Return objects of random bytes, by name. Each is 1,001 bytes shorter than the previous one: no two end alike."""
    source = random.Random(count)
    return {f"object-{number}.bin": source.randbytes(size - 1001 * number) for number in range(count)}


@cache
def lines(size: int) -> dict[str, bytes]:
    """Return one object. Its lines have all lengths up to two segments."""
    source = random.Random(size)
    made = bytearray()
    for number in itertools.count():
        if len(made) >= size:
            return {"lines": bytes(made)}
        length = source.choice([10, 40, 200, 2 * SEGMENT_SIZE])
        made += b"%06d %s\n" % (number, source.randbytes(source.randrange(length)).hex().encode())
    raise AssertionError


@dataclass(frozen=True)
class Lab:
    """The network of a case, with methods that start either program in it."""

    libnorm_peer: str
    directory: Path
    network: Network

    def _argv(self, kind: str, role: str, node: int, host: Namespace) -> list[str]:
        command = [self.libnorm_peer] if kind == LIBNORM else [sys.executable, "-m", "fjm2", "norm"]
        where = ["--group", GROUP, "--port", str(PORT), "--interface", host.interface, "--node-id", str(node)]
        return [*command, role, *where]

    def receive(self, kind: str, number: int = 0, options: Sequence[str] = ()) -> Process:
        """Start receiver `number`, and wait until it has joined. Receiver 0 is node 2."""
        host = self.network.receivers[number]
        argv = [*self._argv(kind, "recv", node_of(number), host), "--out", str(self.out(number)), *options]
        argv += ["--timeout", str(RECEIVE_TIMEOUT_S), *(["--json"] if kind == FJM2 else [])]
        process = host.start(f"recv-{node_of(number)}", argv)
        process.wait_ready()
        return process

    def send(
        self, kind: str, content: str, files: dict[str, bytes], options: Sequence[str], rate: int = RATE, start: int = 1
    ) -> Process:
        """Start the sender. `start` is 1 for the first start of the sender, 2 for the second."""
        host = self.network.sender
        place = self.directory / f"sent-{start}"
        place.mkdir()
        for name, contents in files.items():
            (place / name).write_bytes(contents)
        argv = [*self._argv(kind, "send", SENDER_NODE, host), "--segment-size", str(SEGMENT_SIZE), "--rate", str(rate)]
        if kind == LIBNORM:
            argv += ["--grtt", "0.02", "--instance-id", str(start), "--timeout", str(SEND_TIMEOUT_S)]
        paths = [str(place / name) for name in files]
        return host.start(f"send-{start}", [*argv, *options, f"--{content}", *paths])

    def out(self, number: int) -> Path:
        return self.directory / f"out-{node_of(number)}"

    def finish(self, receiver: Process, number: int) -> dict[str, Any]:
        """Wait for a receiver to end successfully, and return its report."""
        assert receiver.wait(RECEIVE_TIMEOUT_S + 10) == 0, "receiver failed"
        report = receiver.report()
        assert report["ok"] is True
        assert report["bytes"] == sum(len(contents) for contents in self.received(number).values())
        return report

    def received(self, number: int) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.out(number).iterdir() if path.is_file()}


def node_of(receiver: int) -> int:
    return 2 + receiver


def fec_options(kind: str, fec: str) -> list[str]:
    block, parity, auto = FECS[fec]
    options = ["--block-size", str(block), "--parity", str(parity), "--auto-parity", str(auto)]
    if kind == FJM2:
        options += ["--fec", "rs" if parity else "none"]
    return options


def count_options(content: str, files: dict[str, bytes]) -> list[str]:
    return ["--count", str(1 if content == STREAM else len(files))]


def assert_same(content: str, received: dict[str, bytes], sent: dict[str, bytes]) -> None:
    if content == FILE:
        assert sorted(received) == sorted(sent)
    elif content == STREAM:
        assert len(received) == 1
    # DATA objects have no names, so compare contents. A failure should not print them.
    assert sorted(map(len, received.values())) == sorted(map(len, sent.values()))
    same = received == sent if content == FILE else sorted(received.values()) == sorted(sent.values())
    assert same, "contents differ"


def is_rest(received: dict[str, bytes], sent: dict[str, bytes]) -> bool:
    """Return True if the objects received are the last ones that were sent, but not all."""
    return 0 < len(received) < len(sent) and sorted(received.values()) == sorted(list(sent.values())[-len(received) :])


class Scenario(Protocol):
    def __call__(self, case: "Case", lab: Lab) -> None: ...


@dataclass(frozen=True, eq=False)
class Case:
    """A scenario, the programs that take part in it, and the link between them."""

    scenario: Scenario
    sender: str
    receivers: tuple[str, ...]
    content: str = DATA
    fec: str = "rs8"
    loss: float = 0.05
    unicast: bool = False
    is_whole: bool = False
    """True if the link may lose the first datagrams of the sender, because another node sends before it. Receivers ask
    for them."""
    send_options: Sequence[str] = ()
    label: str = field(kw_only=True)

    @property
    def uses_fjm2(self) -> bool:
        return FJM2 in (self.sender, *self.receivers)

    def __str__(self) -> str:
        who = f"{self.sender}_to_{'_and_'.join(self.receivers)}" if self.uses_fjm2 else "libnorm_alone"
        return f"{who}-{self.label}"

    @property
    def is_slow(self) -> bool:
        """True if the sender uses congestion control, with which it begins slowly."""
        return "--cc" in self.send_options

    @property
    def fec_options(self) -> list[str]:
        return fec_options(self.sender, self.fec) if self.fec else []

    @property
    def receive_options(self) -> list[str]:
        return ["--unicast-nack"] * self.unicast + ["--sync", "stream"] * self.is_whole

    def lose(self, network: Network) -> None:
        """Make the link lose datagrams, but not the first ones that the next sender sends."""
        if self.loss:
            network.cut_trains()
            for host in network.receivers:
                host.lose(self.loss, LOSSLESS_BYTES)

    def run(self, libnorm_peer: str, directory: Path) -> None:
        with Network(directory, len(self.receivers)) as network:
            self.lose(network)
            self.scenario(self, Lab(libnorm_peer, directory, network))


def transfer(case: Case, lab: Lab) -> None:
    """Everything arrives at every receiver, and both sides end successfully."""
    sent = lines(250_000) if case.content == STREAM else objects(3, 100_000)
    options = [*case.receive_options, *count_options(case.content, sent)]
    receivers = [lab.receive(kind, number, options) for number, kind in enumerate(case.receivers)]
    sender = lab.send(case.sender, case.content, sent, [*case.fec_options, *case.send_options])
    for number, receiver in enumerate(receivers):
        report = lab.finish(receiver, number)
        assert_same(case.content, lab.received(number), sent)
        assert report["objects"] == (1 if case.content == STREAM else len(sent))
        if case.content == STREAM:
            assert report["messages"] == sent["lines"].count(b"\n")
        if case.loss:
            assert lab.network.receivers[number].packets_dropped() > 0
            if case.receivers[number] == FJM2 and case.fec == "none":
                assert report["nacks_sent"] > 0
    assert sender.wait(SEND_TIMEOUT_S) == 0, "sender failed"


def chatter(case: Case, lab: Lab) -> None:
    """Everything arrives while another node sends acknowledgements of applications, and asks for them."""
    host = lab.network.receivers[0]
    argv = [sys.executable, str(CHATTER), GROUP, str(PORT), host.interface, str(SENDER_NODE), str(CHATTER_ACKS)]
    noise = host.start("chatter", argv)
    noise.wait_ready()
    transfer(case, lab)
    assert noise.wait(RECEIVE_TIMEOUT_S) == 0, "too few acknowledgements were sent"


def absent_node(case: Case, lab: Lab) -> None:
    """One of two nodes is absent and never acknowledges.

    The sender fails soon because of it. The other node receives everything.
    """
    sent = lines(100_000) if case.content == STREAM else objects(1, 100_000)
    receiver = lab.receive(case.receivers[0], 0, [*case.receive_options, *count_options(case.content, sent)])
    nodes = f"{node_of(0)},{ABSENT_NODE}"
    sender = lab.send(case.sender, case.content, sent, [*case.fec_options, "--ack-from", nodes])
    assert sender.wait(SEND_TIMEOUT_S) == 1
    lab.finish(receiver, 0)
    assert_same(case.content, lab.received(0), sent)


def late_joiner(case: Case, lab: Lab) -> None:
    """Receiver 0 is there from the start and gets everything.

    Receiver 1 joins late, and gets everything from some object or message on.
    """
    sent = lines(600_000) if case.content == STREAM else objects(10, 70_000)
    first = lab.receive(case.receivers[0], 0, count_options(case.content, sent))
    sender = lab.send(case.sender, case.content, sent, case.fec_options, SLOW_RATE)
    at_first = lab.network.receivers[0]
    until(lambda: at_first.packets_received() > 150, SEND_TIMEOUT_S, "the first objects")
    # With sync=stream, the late receiver would get the whole stream, as the sender still holds its beginning.
    late = lab.receive(case.receivers[1], 1, ["--sync", "current", *count_options(case.content, sent)])
    lab.finish(first, 0)
    assert_same(case.content, lab.received(0), sent)
    if case.content == STREAM:
        lab.finish(late, 1)
        (received,) = lab.received(1).values()
        assert 0 < len(received) < len(sent["lines"])
        assert sent["lines"].endswith(b"\n" + received), "not the last part of the stream, from a message's start"
    else:
        # Objects are complete in any order. The late receiver does not know how many will come, so it does not end.
        until(lambda: is_rest(lab.received(1), sent), SEND_TIMEOUT_S, "all objects from some one on")
        late.kill()
    assert sender.wait(SEND_TIMEOUT_S) == 0, "sender failed"


def restart(case: Case, lab: Lab) -> None:
    """A sender dies in the middle of an object. Another one with the same node id starts anew, and its data arrives."""
    sent = lines(250_000) if case.content == STREAM else objects(3, 100_000)
    unfinished = {"lines": lines(3_000_000)["lines"]} if case.content == STREAM else objects(1, 3_000_000)
    # At the receiver, an unfinished stream has its own file. Only the completed objects and streams count.
    receiver = lab.receive(case.receivers[0], 0, count_options(case.content, sent))
    first = lab.send(case.sender, case.content, unfinished, case.fec_options, 2 * SLOW_RATE)
    host = lab.network.receivers[0]
    until(lambda: host.packets_received() > 200, SEND_TIMEOUT_S, "the first sender's segments")
    first.kill()
    case.lose(lab.network)
    second = lab.send(case.sender, case.content, sent, case.fec_options, start=2)
    assert receiver.wait(RECEIVE_TIMEOUT_S + 10) == 0, "receiver failed"
    received = list(lab.received(0).values())
    for contents in sent.values():
        assert contents in received, "not what the second sender sent"
    assert second.wait(SEND_TIMEOUT_S) == 0, "sender failed"


def each(of: Iterable[Case | ParameterSet]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return pytest.mark.parametrize("case", of, ids=str)


def all_transfers() -> Iterator[ParameterSet]:
    """Return all combinations of the settings of a transfer.

    A third of them contains each pair of values. The other combinations run only at night, and so do those of libnorm
    with itself.
    """
    for numbered in itertools.product(*map(enumerate, (PAIRS, CONTENTS, FECS, LOSSES, NACKS))):
        places, values = zip(*numbered, strict=True)
        (sender, receiver), content, fec, loss, nack = values
        label = f"{content}-{fec}-loss{round(100 * loss)}-{nack}"
        case = Case(transfer, sender, (receiver,), content, fec, loss, nack == "unicast", label=label)
        yield pytest.param(case, marks=pytest.mark.nightly if sum(places) % 3 or sender == receiver else ())


@each(list(all_transfers()))
def test_contents_arrive_identical(cases: Any, case: Case) -> None:
    cases.check(case)


@each(
    [
        Case(transfer, sender, (receiver,), content, send_options=("--ack-from", str(node_of(0))), label=content)
        for sender, receiver in PAIRS
        for content in CONTENTS
    ]
)
def test_a_receiver_acknowledges(cases: Any, case: Case) -> None:
    cases.check(case)


@each(
    [
        Case(chatter, *pair, content, is_whole=True, label=content)
        for pair in CHATTER_PAIRS
        for content in (DATA, STREAM)
    ]
)
def test_acknowledgements_of_applications_do_no_harm(cases: Any, case: Case) -> None:
    cases.check(case)


@each([Case(absent_node, sender, (receiver,), c, label=c) for sender, receiver in PAIRS for c in (DATA, STREAM)])
def test_an_absent_node_fails_the_sender_in_time(cases: Any, case: Case) -> None:
    cases.check(case)


@each(
    [
        Case(transfer, sender, (receiver,), content, loss=loss, send_options=("--cc",), label=f"{content}-loss{loss:g}")
        for sender, receiver in PAIRS
        for content in (DATA, STREAM)
        for loss in (0.0, 0.02)
    ]
)
def test_contents_arrive_under_congestion_control(cases: Any, case: Case) -> None:
    cases.check(case)


@each(
    [
        Case(transfer, sender, receivers, content, unicast=nack == "unicast", label=f"{content}-{nack}")
        for sender, receivers in [(LIBNORM, (FJM2, LIBNORM)), (FJM2, (FJM2, LIBNORM)), (LIBNORM, (LIBNORM, LIBNORM))]
        for content in (DATA, STREAM)
        for nack in ("multicast", "unicast")
    ]
)
def test_two_receivers_both_have_everything(cases: Any, case: Case) -> None:
    cases.check(case)


@pytest.mark.calm
@each(
    [
        Case(late_joiner, sender, receivers, content, label=content)
        for sender, receivers in [(LIBNORM, (LIBNORM, FJM2)), (FJM2, (FJM2, LIBNORM)), (LIBNORM, (LIBNORM, LIBNORM))]
        for content in (DATA, STREAM)
    ]
)
def test_a_late_joiner_has_all_from_then_on(cases: Any, case: Case) -> None:
    cases.check(case)


@each([Case(restart, sender, (receiver,), c, label=c) for sender, receiver in PAIRS for c in (DATA, STREAM)])
def test_a_restarted_sender_is_heard_anew(cases: Any, case: Case) -> None:
    cases.check(case)


FEC_IDS = {
    "id2m8": ("--fec", "2", "--block-size", "32", "--parity", "8", "--auto-parity", "1"),
    # libnorm itself chooses 16-bit symbols for blocks that do not fit into 255.
    "id2m16": ("--block-size", "250", "--parity", "16", "--auto-parity", "1"),
    "id129": ("--fec", "129", "--block-size", "32", "--parity", "8", "--auto-parity", "1"),
}


@each(
    [
        Case(transfer, LIBNORM, (receiver,), content, "", send_options=options, label=f"{content}-{name}")
        for receiver in (FJM2, LIBNORM)
        for content in (DATA, STREAM)
        for name, options in FEC_IDS.items()
    ]
)
def test_other_codes_of_libnorm_are_understood(cases: Any, case: Case) -> None:
    cases.check(case)
