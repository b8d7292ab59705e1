"""Tests of presence: the content of announcements, when they are sent, and when they are believed."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjm2.bus.presence import INTERVAL_S, Announcement, Announcer, Flag, PresenceTable, decode

U32 = st.integers(0, 0xFFFFFFFF)


@given(
    connection=st.integers(0, (1 << 64) - 1),
    lanes=st.lists(U32, max_size=8).map(tuple),
    client_id=st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60),
    topics=st.frozensets(U32, max_size=50),
    flags=st.integers(0, 15),
    valid_s=st.integers(1, 600),
    table_version=st.integers(0, (1 << 64) - 1),
)
def test_announcements_survive_a_round_trip(
    connection: int,
    lanes: tuple[int, ...],
    client_id: str | None,
    topics: frozenset[int],
    flags: int,
    valid_s: int,
    table_version: int,
) -> None:
    announcement = Announcement(connection, lanes, client_id, topics, flags, valid_s, table_version)
    content = announcement.encode(1400)
    assert decode(content) == announcement
    if table_version:
        assert decode(content + b"of a later version") == announcement
    assert len(content) == 16 + 4 * (len(lanes) + len(topics)) + len((client_id or "").encode()) + 8 * bool(
        table_version
    )


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda data: b"\x01" + data))
def test_anything_can_be_decoded_or_refused(content: bytes) -> None:
    announcement = decode(content)
    if announcement is not None:
        assert PresenceTable().update(1, announcement, 0.0) is not bool(announcement.flags & Flag.GOODBYE)


@pytest.mark.parametrize("cut", [0, 1, 19, -1])
def test_a_truncated_announcement_is_refused(cut: int) -> None:
    content = Announcement(1, (2, 0, 3), "client", frozenset((4, 5))).encode(1400)
    assert decode(content[:cut]) is None


def test_another_version_is_refused() -> None:
    content = Announcement(1).encode(1400)
    assert decode(b"\x02" + content[1:]) is None


def test_a_table_version_that_is_cut_short_is_unknown() -> None:
    content = Announcement(1, (2,), topics=frozenset((4,)), table_version=1 << 40).encode(1400)
    for cut in range(1, 8):
        heard = decode(content[:-cut])
        assert heard is not None
        assert (heard.table_version, heard.topics) == (0, {4})


@pytest.mark.parametrize("bytes_max", [64, 300, 1400])
@pytest.mark.parametrize("table_version", [0, 9])
def test_topics_that_do_not_fit_become_all_topics(bytes_max: int, table_version: int) -> None:
    announcement = Announcement(1, (2, 3, 4), "c" * 100, frozenset(range(1000)), table_version=table_version)
    content = announcement.encode(bytes_max)
    assert len(content) <= bytes_max
    heard = decode(content)
    assert heard is not None
    assert heard.table_version == table_version
    assert heard.flags & Flag.WANTS_ALL
    table = PresenceTable()
    table.update(9, heard, 0.0)
    assert table.receivers({999_999}) == {9}


def test_a_long_client_id_is_left_out() -> None:
    heard = decode(Announcement(1, (), "c" * 256, frozenset((7,))).encode(1400))
    assert heard is not None
    assert heard.client_id is None
    assert heard.topics == {7}


# The table.


def test_publishers_that_do_not_know_a_table_are_found() -> None:
    table = PresenceTable()
    table.update(1, Announcement(1, (11, 0), table_version=4), 0.0)
    table.update(2, Announcement(2, (0, 22), table_version=5), 0.0)
    table.update(3, Announcement(3, (33,)), 0.0)
    table.update(4, Announcement(4, (0, 0, 0)), 0.0)
    assert [peer.node_id for peer in table.publishers_before(5)] == [1, 3]
    assert [peer.node_id for peer in table.publishers_before(6)] == [1, 2, 3]
    table.update(1, Announcement(1, (11, 0), table_version=5), 1.0)
    table.update(3, Announcement(3, flags=Flag.GOODBYE), 1.0)
    assert table.publishers_before(5) == []
    assert [peer.node_id for peer in table.publishers_before(6)] == [1, 2]
    table.expire(1e6)
    assert table.publishers_before(6) == []


def test_the_table_knows_the_receivers_of_a_topic() -> None:
    table = PresenceTable()
    table.update(10, Announcement(1, (10, 0, 12), "a", frozenset((100, 200))), 0.0)
    table.update(10, Announcement(2, (10, 0, 12), "b", frozenset((300,))), 0.0)
    table.update(20, Announcement(3, (20, 0, 0), None, frozenset((300,))), 0.0)
    assert table.receivers({200}) == {10}
    assert table.receivers({300, 999}) == {10, 20}
    assert table.subscribers(300) == 2
    assert table.senders == {10, 12, 20}
    found = table.lane_of(12)
    assert found is not None
    assert (found[0], found[1].client_id) == (2, "a")
    assert table.lane_of(99) is None
    assert table.has_client("b") == 10
    assert table.has_client("c") is None


def test_keepers_receive_everything_and_subscribe_to_nothing() -> None:
    table = PresenceTable()
    keeper = Announcement(1, (7,), "keeper-1", flags=Flag.WANTS_ALL | Flag.KEEPER)
    assert table.update(7, keeper, 0.0)
    table.update(7, Announcement(2, (7,), topics=frozenset((5,))), 0.0)  # an application in the same process
    table.update(8, Announcement(3, (8,), "keeper-3", flags=Flag.WANTS_ALL | Flag.KEEPER), 0.0)
    assert table.receivers({4}) == {7, 8}
    assert table.subscriber_nodes({4}) == frozenset()
    assert table.subscriber_nodes({5}) == {7}
    assert (table.subscribers(4), table.subscribers(5)) == (0, 1)
    assert table.forget_keepers(7)
    assert not table.forget_keepers(7)
    assert [peer.connection_id for peer in table.peers] == [2, 3]
    assert table.update(7, keeper, 1.0)
    assert table.receivers({4}) == {7, 8}


def test_a_client_that_was_not_heard_of_lately_may_be_gone() -> None:
    table = PresenceTable()
    table.update(10, Announcement(1, (10,), "desk"), 5.0)
    assert table.has_heard("desk", 5.0)
    assert not table.has_heard("desk", 5.1)
    assert not table.has_heard("till", 0.0)
    table.renew(9.0)
    assert not table.has_heard("desk", 5.1)
    table.update(10, Announcement(1, (10,), "desk"), 6.0)
    assert table.has_heard("desk", 5.1)


def test_keepers_of_a_cell_are_known_until_they_leave() -> None:
    table = PresenceTable()
    kept = Flag.WANTS_ALL | Flag.KEEPER
    changes: list[bool] = []
    table.on_cell = lambda: changes.append(table.has_cell)
    assert table.update(7, Announcement(1, (7,), "keeper-1", flags=kept), 0.0)
    table.update(8, Announcement(2, (8,), flags=Flag.CELL), 0.0)  # no keeper
    assert not table.has_cell
    table.update(7, Announcement(1, (7,), "keeper-1", flags=kept | Flag.CELL), 1.0)
    table.update(8, Announcement(2, (8,), flags=kept | Flag.CELL), 1.0)
    assert table.has_cell
    table.update(8, Announcement(2, (8,), flags=kept), 1.5)
    assert table.has_cell
    assert table.update(8, Announcement(2, flags=Flag.GOODBYE), 1.5)
    assert [peer.client_id for peer in table.keepers] == ["keeper-1"]
    assert not table.update(7, Announcement(1, (7,), "keeper-1", flags=kept | Flag.CELL), 2.0)
    assert table.update(7, Announcement(1, flags=Flag.GOODBYE), 3.0)
    assert not table.has_cell
    assert table.update(9, Announcement(3, (9,), flags=kept | Flag.CELL, valid_s=5), 4.0)
    assert table.has_cell
    assert table.expire(20.0)
    assert not table.has_cell
    assert table.keepers == []
    table.update(9, Announcement(3, (9,), flags=kept | Flag.CELL), 21.0)
    assert table.forget_keepers(9)
    assert changes == [True, False] * 3


def test_updates_tell_whether_anything_changed() -> None:
    table = PresenceTable()
    announcement = Announcement(1, (10,), None, frozenset((100,)))
    assert table.update(10, announcement, 0.0)
    assert not table.update(10, announcement, 1.0)
    assert table.update(10, Announcement(1, (10,), None, frozenset((101,))), 2.0)
    assert table.receivers({100}) == frozenset()
    assert table.update(10, Announcement(1, flags=Flag.GOODBYE), 3.0)
    assert not table.update(10, Announcement(1, flags=Flag.GOODBYE), 3.0)
    assert len(table) == 0


def test_silent_nodes_are_forgotten() -> None:
    table = PresenceTable()
    table.update(10, Announcement(1, valid_s=15), 0.0)
    table.update(20, Announcement(2, valid_s=30), 0.0)
    assert not table.expire(14.9)
    assert table.expire(15.0)
    assert len(table) == 1
    table.renew(29.0)
    assert not table.expire(58.9)
    assert table.expire(59.0)
    assert table.expired == {10, 20}


def test_nodes_that_are_heard_again_or_said_goodbye_are_not_among_the_expired() -> None:
    table = PresenceTable()
    for node_id in (10, 20, 30):
        table.update(node_id, Announcement(node_id, valid_s=15), 0.0)
    table.update(30, Announcement(30, flags=Flag.GOODBYE), 1.0)
    table.expire(15.0)
    table.update(20, Announcement(20, valid_s=15), 16.0)
    assert table.expired == {10}
    for node_id in range(100, 3000):
        table.update(node_id, Announcement(node_id, valid_s=15), 17.0)
    table.expire(40.0)
    assert len(table.expired) < 2000  # it is bounded


def test_connections_that_said_goodbye_are_closed_until_they_are_announced_again() -> None:
    table = PresenceTable()
    table.update(10, Announcement(1, valid_s=15), 0.0)
    table.update(20, Announcement(2, valid_s=15), 0.0)
    assert not table.has_closed(1)
    table.update(10, Announcement(1, flags=Flag.GOODBYE), 1.0)
    table.update(10, Announcement(3, flags=Flag.GOODBYE), 1.0)  # never heard of: anybody may have made it up
    table.expire(20.0)  # of 2: it may be killed, or cut off
    assert [table.has_closed(one) for one in (1, 2, 3)] == [True, False, False]
    table.update(11, Announcement(1, valid_s=15), 1.1)  # its node has another id now
    assert not table.has_closed(1)
    for one in range(100, 3000):
        table.update(one, Announcement(one, valid_s=15), 30.0)
        table.update(one, Announcement(one, flags=Flag.GOODBYE), 30.0)
    assert table.has_closed(2999)
    assert sum(map(table.has_closed, range(3000))) < 2000  # it is bounded


def test_a_node_cannot_announce_for_another() -> None:
    table = PresenceTable()
    table.update(10, Announcement(1, (), "me", frozenset((100,)), valid_s=15), 0.0)
    assert not table.update(66, Announcement(1, flags=Flag.GOODBYE), 1.0)
    assert not table.update(66, Announcement(1, (), "them", frozenset((200,))), 1.0)
    assert table.stats.announcements_refused == 2
    assert table.receivers({100}) == {10}
    assert table.update(66, Announcement(1, (), "them", frozenset((200,))), 15.0)  # node 10 is forgotten by then
    assert table.receivers({200}) == {66}


def test_a_flood_of_new_nodes_is_bounded() -> None:
    table = PresenceTable(peers_max=50, topics_max=1000)
    table.update(1, Announcement(1, (), "first", frozenset((5,)), valid_s=600), 0.0)
    for number in range(2, 2000):
        table.update(number, Announcement(number, (), None, frozenset(range(300)), valid_s=15), number / 1000)
    assert len(table) == 50
    assert table.stats.announcements_refused == 1949
    assert table.has_client("first") == 1
    assert sum(len(peer.topics) for peer in table.peers) <= 1000
    assert len(table.receivers({299})) == 49  # nodes without stored topics count as subscribed to everything
    assert table.update(3000, Announcement(3000), 20.0)  # there is room again after the flood
    assert len(table) == 2


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 4), st.frozensets(st.integers(0, 9), max_size=4), st.booleans()),
        max_size=40,
    )
)
def test_the_sum_of_topics_is_kept(steps: list[tuple[int, int, frozenset[int], bool]]) -> None:
    table = PresenceTable(peers_max=3, topics_max=8)
    for now, (node, connection, topics, is_goodbye) in enumerate(steps):
        flags = Flag.GOODBYE if is_goodbye else 0
        table.update(node, Announcement(connection, (), None, topics, flags, valid_s=5), float(now))
        held = sum(len(peer.topics) for peer in table.peers)
        assert held == table._topics <= 8
        assert len(table) <= 3


# Times of announcements.


class Clock:
    """The clock and timers of an event loop, moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None], /) -> "Call":
        self._count += 1
        entry = (self.now + delay, self._count, callback)
        self._calls.append(entry)
        return Call(self._calls, entry)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted(call for call in self._calls if call[0] <= end):
            self.now = due[0][0]
            self._calls.remove(due[0])
            due[0][2]()
        self.now = end


class Call:
    def __init__(
        self, calls: list[tuple[float, int, Callable[[], None]]], entry: tuple[float, int, Callable[[], None]]
    ) -> None:
        self._calls, self._entry = calls, entry

    def cancel(self) -> None:
        if self._entry in self._calls:
            self._calls.remove(self._entry)


class Schedule:
    """An announcer, and the times at which it has announced."""

    def __init__(self, peers: int = 0) -> None:
        self.clock = Clock()
        self.times: list[float] = []
        self.announcer = Announcer(
            lambda: self.times.append(self.clock.now), lambda: peers, Random(1), clock=self.clock
        )


def test_changes_are_collected_and_repeated() -> None:
    schedule = Schedule()
    for _ in range(10):
        schedule.announcer.change()
        schedule.clock.advance(0.004)
    schedule.clock.advance(3.0)
    assert len(schedule.times) == 4
    assert schedule.times[0] == pytest.approx(0.05)
    assert schedule.times[-1] < 2.0


def test_announcements_repeat_regularly_at_random_times() -> None:
    schedule = Schedule()
    schedule.announcer.change()
    schedule.clock.advance(1000.0)
    gaps = [after - before for before, after in zip(schedule.times[4:], schedule.times[5:], strict=False)]
    assert len(gaps) > 150
    assert min(gaps) >= 0.8 * INTERVAL_S - 1e-9
    assert max(gaps) <= 1.2 * INTERVAL_S + 1e-9
    assert max(gaps) - min(gaps) > 0.5


def test_a_burst_of_changes_costs_little() -> None:
    schedule = Schedule()
    for _ in range(1000):
        schedule.announcer.change()
        schedule.clock.advance(0.01)
    assert len(schedule.times) <= 10 / 0.05 + 1


def test_answers_are_spread() -> None:
    first = []
    for seed in range(30):
        schedule = Schedule()
        schedule.announcer._random = Random(seed)
        schedule.announcer.answer()
        schedule.announcer.answer()
        schedule.clock.advance(0.2)
        assert len(schedule.times) == 1
        first.append(schedule.times[0])
    assert max(first) <= 0.1
    assert max(first) - min(first) > 0.05


def test_announcements_are_rarer_when_there_are_more_nodes() -> None:
    schedule = Schedule(peers=4000)
    assert schedule.announcer.interval_s == pytest.approx(40.01)
    assert schedule.announcer.valid_s == 120
    schedule.announcer.change()
    schedule.clock.advance(400.0)
    assert len(schedule.times) <= 4 + 400 / 32


def test_announce_now_is_immediate_and_nothing_follows_the_close() -> None:
    schedule = Schedule()
    schedule.announcer.now()
    assert schedule.times == [0.0]
    schedule.announcer.close()
    schedule.clock.advance(100.0)
    assert schedule.times == [0.0]
