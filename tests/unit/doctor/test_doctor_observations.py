"""Tests of the doctor's observations of a bus, and of the findings about them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fjm2.bus.presence import Announcement, Flag
from fjm2.doctor import Verdict
from fjm2.doctor.observations import Observations, judge_bus, judge_other_groups, judge_wrong_interface
from fjm2.norm import Address, Train
from fjm2.norm.core.wire import Ack, AckType, Application, Data, FecId, Nack, Status, StatusFlag

FIRST, SECOND = ("10.1.1.1", 40_001), ("10.1.1.2", 40_002)


def train(datagram: bytes, address: Address = FIRST) -> Train:
    return Train(np.frombuffer(datagram, np.uint8), max(1, len(datagram)), address)


def spoken(node_id: int, content: bytes) -> bytes:
    return Application(source_id=node_id, instance_id=1, grtt_q=0, backoff=4, gsize_q=0, content=content).encode()


def announced(node_id: int, connection_id: int, client_id: str | None = None, *lanes: int, flags: int = 0) -> bytes:
    return spoken(node_id, Announcement(connection_id, lanes, client_id, flags=flags).encode(1400))


def problems(heard: Observations) -> set[str]:
    return {one.problem for one in judge_bus(heard, 2.0, "239.1.1.1 port 5740") if one.problem}


def test_connections_are_counted_and_named() -> None:
    heard = Observations()
    heard.receive(train(announced(7, 1, "desk-7", 7)))
    heard.receive(train(announced(8, 2, None, 8), SECOND))
    first, *_ = judge_bus(heard, 2.0, "239.1.1.1 port 5740")
    assert first.verdict is Verdict.OK
    assert first.text.startswith("2 connections from 2 addresses ('desk-7')")
    assert not problems(heard)
    heard.receive(train(announced(8, 2, flags=Flag.GOODBYE), SECOND))
    assert len(heard.connections) == 1


def test_client_ids_cannot_control_the_terminal() -> None:
    heard = Observations()
    heard.receive(train(announced(7, 1, "\x1b[2Jdesk")))
    heard.receive(train(announced(8, 2, "\x1b[2Jdesk"), SECOND))
    assert problems(heard) == {"client_id_twice"}
    assert all(one.text.isprintable() for one in judge_bus(heard, 2.0, "g"))


def test_silence_is_not_a_fault() -> None:
    (finding,) = judge_bus(Observations(), 2.0, "239.1.1.1 port 5740")
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.advice


def test_a_shared_node_id_is_distinguished_from_a_moved_node() -> None:
    heard = Observations()
    for address in (FIRST, FIRST, SECOND, SECOND):
        heard.receive(train(announced(7, 1), address))
    assert "node_id_twice" not in problems(heard)
    heard.receive(train(announced(7, 1), FIRST))
    assert "node_id_twice" in problems(heard)


def test_nodes_that_left_are_not_strangers() -> None:
    heard = Observations()
    heard.receive(train(announced(7, 1, "desk", 7)))
    heard.receive(train(announced(8, 2, "feed", 8, 80), SECOND))
    for node_id in (8, 80):
        heard.receive(train(spoken(node_id, b""), SECOND))
    heard.receive(train(announced(8, 2, flags=Flag.GOODBYE), SECOND))
    heard.receive(train(announced(9, 3, flags=Flag.GOODBYE), SECOND))  # nothing else was heard of this node
    assert not problems(heard)
    heard.receive(train(spoken(10, b""), SECOND))
    assert problems(heard) == {"foreign_norm"}


def test_data_is_counted_without_being_decoded() -> None:
    data = Data(
        source_id=9,
        instance_id=1,
        grtt_q=0,
        backoff=4,
        gsize_q=0,
        flags=0,
        fec_id=FecId.REED_SOLOMON_8,
        object_id=3,
        payload_id=0,
        payload=bytes(100),
    ).encode()
    heard = Observations()
    heard.receive(Train(np.frombuffer(data * 30, np.uint8), len(data), FIRST))
    assert (heard.datagrams, heard.nodes[9].datagrams) == (30, 30)


def test_shared_client_ids_and_other_versions_are_reported() -> None:
    heard = Observations()
    heard.receive(train(announced(7, 1, "desk")))
    heard.receive(train(announced(8, 2, "desk"), SECOND))
    heard.receive(train(spoken(9, b"\x02" + announced(9, 3)[20:])))
    assert problems(heard) == {"client_id_twice", "other_version", "foreign_norm"}


def test_packets_of_the_doctor_are_ignored() -> None:
    heard = Observations(frozenset({7}))
    heard.receive(train(announced(7, 1)))
    heard.receive(train(b"FJM2 probe and so on"))
    assert heard.is_silent
    assert not heard.strangers
    assert not heard.connections


def test_strangers_are_listed_by_traffic() -> None:
    heard = Observations()
    for _ in range(5):
        heard.receive(train(b"hello, world", SECOND))
    heard.receive(train(b"hello, world", FIRST))
    (finding,) = (one for one in judge_bus(heard, 2.0, "g") if one.problem == "foreign_traffic")
    assert finding.figures["senders"] == ["10.1.1.2:40002", "10.1.1.1:40001"]


def test_a_bus_on_another_interface_is_a_fault_only_if_ours_is_silent() -> None:
    uri_on = "fjm2://?interface={}".format
    elsewhere = Observations()
    elsewhere.receive(train(announced(7, 1)))
    (alone,) = judge_wrong_interface("eth0", True, {"eth1": elsewhere, "eth2": Observations()}, uri_on)
    assert (alone.verdict, alone.problem) == (Verdict.FAULT, "wrong_interface")
    assert alone.advice == ("name it in the URI: fjm2://?interface=eth1",)
    (both,) = judge_wrong_interface("eth0", False, {"eth1": elsewhere}, uri_on)
    assert (both.verdict, both.problem) == (Verdict.WARNING, "bus_on_two_interfaces")
    assert not list(judge_wrong_interface("eth0", True, {"eth1": Observations()}, uri_on))


def test_other_groups_on_the_port_are_listed() -> None:
    (finding,) = judge_other_groups("239.1.1.1", 5740, {"239.1.1.1", "239.1.1.2"})
    assert (finding.verdict, finding.figures["groups"]) == (Verdict.WARNING, ["239.1.1.2"])
    (fine,) = judge_other_groups("239.1.1.1", 5740, {"239.1.1.1"})
    assert fine.verdict is Verdict.OK


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=80) | st.integers(1, 9).map(lambda node: announced(node, node)),
            st.integers(1, 80),
            st.sampled_from([FIRST, SECOND]),
        )
    )
)
def test_any_traffic_is_judged(made: list[tuple[bytes, int, Address]]) -> None:
    heard = Observations()
    for datagrams, segment_bytes, address in made:
        heard.receive(Train(np.frombuffer(datagrams, np.uint8), segment_bytes, address))
    findings = list(judge_bus(heard, 2.0, "239.1.1.1 port 5740"))
    assert all(
        one.text and (one.problem is not None) == (one.verdict not in (Verdict.OK, Verdict.UNKNOWN)) for one in findings
    )


def answered(progress: int, flags: int = 0, *, is_request: bool = True) -> bytes:
    """Return an answer of node 8 to sender 7."""
    extensions = (Status(flags=flags, progress=progress),)
    if is_request:
        return Nack(source_id=8, sender_id=7, instance_id=1, extensions=extensions, requests=()).encode()
    return Ack(
        source_id=8, sender_id=7, instance_id=1, extensions=extensions, ack_type=AckType.CC, content=b""
    ).encode()


DATA = Data(
    source_id=7,
    instance_id=1,
    grtt_q=0,
    backoff=4,
    gsize_q=0,
    flags=0,
    fec_id=FecId.REED_SOLOMON_8,
    object_id=1,
    payload_id=0,
    payload=bytes(1400),
).encode()


def watched(*answers: bytes) -> Observations:
    """Return what is observed if a sender sends data after each answer."""
    heard = Observations()
    heard.receive(train(announced(7, 2, "shop", 7)))
    heard.receive(train(announced(8, 1, "desk-7"), SECOND))
    for answer in answers:
        heard.receive(train(answer, SECOND))
        heard.receive(train(DATA))
    return heard


def test_a_receiver_that_answers_and_gets_nothing_is_named() -> None:
    heard = watched(answered(5), answered(5, is_request=False), answered(5))
    (finding,) = [one for one in judge_bus(heard, 2.0, "239.1.1.1 port 5740") if one.problem]
    assert (finding.verdict, finding.problem) == (Verdict.FAULT, "receiver_gets_little")
    assert "'desk-7' at 10.1.1.2 answers, but gets only 0% of the data from 10.1.1.1" in finding.text
    assert finding.figures["datagram_bytes"] == len(DATA)


def test_receivers_that_progress_or_are_full_or_lack_nothing_are_not_named() -> None:
    assert not problems(watched(answered(5), answered(1405), answered(2805)))
    assert not problems(watched(*[answered(5, StatusFlag.FULL)] * 9))
    assert not problems(watched(*[answered(5, is_request=False)] * 9))
    heard = watched(answered(5))
    for _ in range(9):  # nothing is sent meanwhile
        heard.receive(train(answered(5), SECOND))
    assert not problems(heard)
