"""Tests of a forwarder's tables: locations of nodes, interest of LANs and peers, and headers of datagrams."""

import numpy as np
from gateway_datagrams import nack
from hypothesis import given
from hypothesis import strategies as st

from fjm2.bus.presence import PEERS_MAX, Announcement, Flag
from fjm2.norm.core.wire import (
    MessageType,
    decode,
)
from fjm2d.forwarding.headers import application, application_content, head_of, parts_of
from fjm2d.forwarding.interest import HINT_S, LanInterest, PeerInterest, Status, is_wish
from fjm2d.forwarding.node_table import FORGET_S, HOLD_S, MOVE_S, NodeTable


def test_a_node_stays_on_the_side_where_it_was_heard_first() -> None:
    table = NodeTable()
    assert table.note_lan(1, ("10.0.0.1", 1), 0.0)
    assert not table.note_wan(1, 50, HOLD_S - 0.1, lambda *_: True)
    assert table.note_wan(1, 50, HOLD_S, lambda *_: False)
    assert not table.note_lan(1, ("10.0.0.1", 1), HOLD_S + 1)
    assert table.peer_of(1) == 50
    assert table.address_of(1) is None
    table.expire(HOLD_S + FORGET_S)
    assert len(table) == 0


def test_a_flood_of_nodes_displaces_no_active_node() -> None:
    table = NodeTable(nodes_max=200)
    for node in range(100):
        table.note_lan(node, ("10.0.0.1", node), 0.0)
    for node in range(1000, 3000):
        assert table.note_lan(node, ("10.0.0.66", 1), 1.0)
    assert len(table) == 100
    assert table.refused == 2000
    assert table.address_of(7) == ("10.0.0.1", 7)
    table.note_lan(7, ("10.0.0.1", 7), HOLD_S)
    table.note_lan(5000, ("10.0.0.66", 1), HOLD_S + 1)
    assert table.address_of(5000) is not None
    assert table.address_of(7) is not None
    assert len(table) == 2


def test_neither_side_fills_more_than_half_of_the_table() -> None:
    table = NodeTable(nodes_max=200)
    for node in range(1000, 2000):
        assert table.note_wan(node, node, 0.0, lambda *_: False)
    assert table.counts() == (0, 100)
    for node in range(100):
        table.note_lan(node, ("10.0.0.1", node), 1.0)
    assert table.counts() == (100, 100)
    # Nodes that change sides again and again do not fill more than half of the table either.
    for turn in range(1, 5):
        now = turn * HOLD_S
        for node in range(1000, 1100):
            table.note_lan(node, ("10.0.0.66", 1), now)
            table.note_lan(node % 100, ("10.0.0.1", node % 100), now)
        for node in range(2000 * turn, 2000 * turn + 200):
            table.note_wan(node, node, now, lambda *_: False)
        assert max(table.counts()) <= 100
        assert sum(table.counts()) == len(table)
    assert table.address_of(7) == ("10.0.0.1", 7)


def test_a_peer_that_invents_nodes_leaves_room_for_others() -> None:
    table = NodeTable(nodes_max=200)
    for node in range(1000, 2000):
        table.note_wan(node, 50, 0.0, lambda *_: False)
    assert table.counts() == (0, 50)
    for node in range(20):
        table.note_wan(node, 51, 1.0, lambda *_: False)
        table.note_wan(100 + node, 52, 1.0, lambda *_: False)
    assert [table.peer_of(node) for node in range(16)] == [51] * 16
    assert [table.peer_of(100 + node) for node in range(16)] == [52] * 16
    # The room of a peer that is gone becomes free for others.
    table.forget_behind(frozenset([50]))
    for node in range(3000, 3050):
        table.note_wan(node, 53, 2.0, lambda *_: False)
    assert table.peer_of(3020) == 53
    assert sum(table.counts()) == len(table)


def test_a_node_is_at_one_address_of_the_lan_until_it_has_been_silent_there() -> None:
    table = NodeTable()
    assert table.note_lan(1, ("10.0.0.1", 1), 0.0)
    assert not table.note_lan(1, ("10.0.0.66", 1), MOVE_S - 0.1)
    # Unicast to the gateway may come from another address, and does not extend the hold on the multicast address.
    assert table.note_receiver(1, ("10.0.0.1", 2), MOVE_S - 0.1)
    assert table.address_of(1) == ("10.0.0.1", 1)
    assert table.note_lan(1, ("10.0.0.66", 1), MOVE_S)
    assert table.address_of(1) == ("10.0.0.66", 1)
    table.note_wan(2, 50, 0.0, lambda *_: False)
    assert not table.note_receiver(2, ("10.0.0.1", 2), 1.0)
    assert table.note_receiver(3, ("10.0.0.1", 2), 1.0)


def test_nodes_at_the_address_of_a_mate_are_forgotten() -> None:
    table = NodeTable()
    table.note_lan(1, ("10.0.0.2", 40_002), 0.0)
    table.note_lan(2, ("10.0.0.3", 40_002), 0.0)
    table.forget_at(frozenset({("10.0.0.2", 40_002)}))
    assert table.note_wan(1, 50, 0.1, lambda *_: False)
    assert table.counts() == (1, 1)


@given(st.booleans(), st.sets(st.integers(1, 0xFFFF), max_size=64), st.data())
def test_a_status_survives_encoding_and_decoding(is_forwarder: bool, groups: set[int], draw: st.DataObject) -> None:
    wanted = draw.draw(st.sets(st.sampled_from(sorted(groups)))) if groups else set()
    status = Status(is_forwarder, frozenset(groups), frozenset(wanted))
    assert Status.decode(status.encode()) == status
    assert Status.decode(status.encode()[:-1]) is None
    assert Status.decode(b"\2" + status.encode()[1:]) is None


def test_the_interest_of_a_peer_is_forgotten_with_it() -> None:
    interest = PeerInterest()
    assert interest.note(1, Status(True, frozenset({5, 6}), frozenset({5})), 0.0)
    assert not interest.note(1, Status(True, frozenset({5, 6}), frozenset({5})), 1.0)
    assert (interest.wants(1, 5), interest.wants(1, 6), interest.serves(1, 6), interest.serves(1, 7)) == (
        True,
        False,
        True,
        False,
    )
    assert interest.hint(1, 6, 1.0)
    assert not interest.hint(1, 6, 1.5)
    assert interest.wants(1, 6)
    assert interest.expire(1.5 + HINT_S)
    assert not interest.wants(1, 6)
    interest.forget(1)
    assert not interest.serves(1, 5)


def test_a_group_is_wanted_while_anyone_on_the_lan_subscribes() -> None:
    interest = LanInterest(is_always=False)
    announced = Announcement(1, topics=frozenset({3}), valid_s=15).encode(1000)
    assert interest.note(100, announced, 0.0)
    assert not interest.note(100, announced, 1.0)
    assert interest.is_wanted
    assert not interest.note(100, b"rubbish", 1.0)
    assert not interest.expire(15.9)
    assert interest.expire(16.1)
    assert not interest.is_wanted
    assert interest.note(100, Announcement(1, flags=Flag.WANTS_ALL).encode(1000), 20.0)
    assert interest.note(100, Announcement(1, flags=Flag.GOODBYE).encode(1000), 21.0)
    assert not interest.is_wanted


def test_a_group_is_wanted_while_anyone_on_the_lan_subscribes_to_a_pattern() -> None:
    interest = LanInterest(is_always=False)
    pattern = Announcement(1, flags=Flag.WANTS_ALL, valid_s=15).encode(1400)
    assert is_wish(pattern)
    assert interest.note(7, pattern, 0.0)
    assert interest.is_wanted
    assert interest.note(7, Announcement(1, valid_s=15).encode(1400), 1.0)
    assert not interest.is_wanted


def test_a_group_counts_as_wanted_while_the_table_of_subscribers_is_full() -> None:
    interest = LanInterest(is_always=False)
    crowd = [Announcement(number, valid_s=60).encode(1000) for number in range(1, PEERS_MAX + 1)]
    news = [interest.note(number, announced, 0.0) for number, announced in enumerate(crowd)]
    assert news == [False] * (PEERS_MAX - 1) + [True]
    interest.note(9999, Announcement(99_999, topics=frozenset({3}), valid_s=60).encode(1000), 1.0)
    assert interest.connections == PEERS_MAX
    assert interest.is_wanted
    assert interest.expire(60.1)
    assert not interest.is_wanted


def test_a_head_has_the_type_source_and_sender() -> None:
    content = np.frombuffer(nack(5, 6), np.uint8)
    head = head_of(content)
    assert head is not None
    assert (head.type, head.source, head.sender, head.is_application) == (MessageType.NACK, 5, 6, False)
    assert head_of(content[:11]) is None
    assert head_of(np.frombuffer(b"\x2f" + bytes(20), np.uint8)) is None
    own = np.frombuffer(application(9, 0x1_0007, b"hello"), np.uint8)
    head = head_of(own)
    assert head is not None
    assert head.is_application
    assert application_content(own) == b"hello"
    assert decode(own.tobytes()).sequence == 7
    assert application_content(content) is None


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 5]), st.integers(0, 3)), min_size=1, max_size=20),
    st.integers(0, 30),
)
def test_parts_have_one_kind_and_add_up_to_the_train(kinds: list[tuple[int, int]], tail: int) -> None:
    segments = [bytes([16 | kind, 4, 0, 0, 0, 0, 0, source]) + bytes(22) for kind, source in kinds]
    segments[-1] = segments[-1][: max(8, tail)]
    content = np.frombuffer(b"".join(segments), np.uint8)
    parts = [part.tobytes() for part in parts_of(content, 30)]
    assert b"".join(parts) == content.tobytes()
    for part in parts:
        pieces = [part[start : start + 30] for start in range(0, len(part), 30)]
        assert len({(piece[0], piece[4:8]) for piece in pieces}) == 1
        assert len(pieces) == 1 or pieces[0][0] & 15 != MessageType.CMD
