"""Tests of the router's taps: they see every run before subscriptions do.

Without taps, the router does no extra work.
"""

from itertools import pairwise
from random import Random

from routing import OTHER, SENDER, TOPIC, Bench, Subscriber, message

from fjm2.jms import Topic
from fjm2.messages.batches.frame_run import FrameRun, Frames
from fjm2.messages.frame import FrameWriter, frame_alone
from fjm2.messages.header import DESTINATION_HASH

OTHER_TOPIC = Topic("prices.us")


class Recorder:
    """A tap that keeps the frames of every run.

    It also keeps the number of messages that subscribers had received before each run.
    """

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = subscribers
        self.runs: list[tuple[int, list[bytes]]] = []
        self.hashes: list[int] = []
        self.delivered_before: list[int] = []
        self.alike: list[int] = []
        """Number of frames of each run that came as frames that are alike."""
        self.is_full = False

    @property
    def frames(self) -> list[bytes]:
        return [frame for _, frames in self.runs for frame in frames]

    def take_run(self, sender_id: int, frames: Frames) -> None:
        if isinstance(frames, FrameRun):
            self.alike.append(len(frames))
        self.runs.append((sender_id, [buffer[start:end] for buffer, start, _, end, _ in frames]))
        self.hashes += [header[DESTINATION_HASH] for *_, header in frames]
        self.delivered_before.append(sum(len(each.received) for each in self._subscribers))


def test_a_recorder_sees_every_run_before_consumers_do() -> None:
    subscriber = Subscriber()
    bench, recorder = Bench(subscriber), Recorder(subscriber)
    bench.router.add_tap(recorder)
    frames = [b"".join(message(text)) for text in "abc"]
    bench.take(frames[:2])
    bench.take(frames[2:], OTHER)
    assert recorder.runs == [(SENDER, frames[:2]), (OTHER, frames[2:])]
    assert recorder.delivered_before == [0, 2]
    assert subscriber.texts == ["a", "b", "c"]


def test_a_tap_sees_unsubscribed_messages_and_each_frame_once() -> None:
    bench, recorder = Bench(), Recorder()
    bench.router.add_tap(recorder)
    frame = b"".join(message("a"))
    bench.take_bytes(frame[:20], (0,))
    assert recorder.runs == []  # the frame is incomplete
    bench.take_bytes(frame[20:], ())
    assert recorder.runs == [(SENDER, [frame])]
    assert len(recorder.hashes) == 1


def test_a_tap_does_not_see_messages_published_in_this_process() -> None:
    subscriber = Subscriber()
    bench, recorder = Bench(subscriber), Recorder()
    bench.router.add_tap(recorder)
    bench.router.publish(subscriber.destination, message("own", writer=FrameWriter(1)))
    assert subscriber.texts == ["own"]
    assert recorder.runs == []


def test_taps_can_be_removed_and_leave_nothing_behind() -> None:
    subscriber = Subscriber()
    bench = Bench(subscriber)
    usual = bench.router.hand_out
    first, second = Recorder(), Recorder()
    bench.router.add_tap(first)
    bench.router.add_tap(second)
    bench.take([message("a")])
    bench.router.remove_tap(first)
    bench.take([message("b")])
    bench.router.remove_tap(second)
    bench.router.remove_tap(second)
    bench.take([message("c")])
    assert (len(first.runs), len(second.runs)) == (1, 2)
    assert bench.router.hand_out == usual
    assert subscriber.texts == ["a", "b", "c"]


def test_a_full_tap_holds_the_router_until_it_has_room() -> None:
    bench, tap = Bench(), Recorder()
    bench.router.add_tap(tap)
    tap.is_full = True
    bench.take([b"".join(message("a"))])
    assert bench.router.is_blocked
    bench.router.resume()
    assert bench.router.is_blocked
    tap.is_full = False
    bench.router.resume()
    assert not bench.router.is_blocked


def test_a_full_tap_that_is_removed_holds_nothing_back() -> None:
    bench, tap = Bench(), Recorder()
    bench.router.add_tap(tap)
    tap.is_full = True
    bench.take([b"".join(message("a"))])
    bench.router.remove_tap(tap)
    assert not bench.router.is_blocked


def random_frames(random: Random) -> list[bytes]:
    """Return messages to two topics, of which many that follow each other are alike."""
    writers, frames = [FrameWriter(1), FrameWriter(2)], []
    for _ in range(random.randrange(1, 8)):
        destination, writer = random.choice([TOPIC, OTHER_TOPIC]), random.choice(writers)
        expiration = random.choice([0, 0, 0, 1 << 50])
        text = "x" * random.randrange(60)
        for place in range(random.randrange(1, 40)):
            cut = text[: place % 5] if expiration else text
            frames.append(b"".join(message(cut, destination, writer=writer, expiration=expiration)))
    return frames


def test_taps_get_all_frames_in_order_one_by_one_or_alike() -> None:
    random, alike, mixed = Random(3), 0, 0
    for _ in range(200):
        subscriber = Subscriber()
        bench, recorder = Bench(*random.choice([[], [subscriber]])), Recorder()
        bench.router.add_tap(recorder)
        frames = random_frames(random)
        data = b"".join(frames)
        cuts = sorted({0, len(data), *(random.randrange(len(data)) for _ in range(random.randrange(4)))})
        for first, end in pairwise(cuts):
            bench.take_bytes(data[first:end], (0,) if first == 0 else ())
        assert recorder.frames == frames
        assert bench.router.stats.frames_received == len(frames)
        if bench.router.by_hash:
            wanted = [frame for frame in frames if frame_alone(frame)[4][DESTINATION_HASH] == TOPIC.frame_hash]
            assert [one.head + one.body for one in subscriber.received] == wanted
        alike += sum(recorder.alike)
        mixed += len(recorder.alike) > 0 and sum(recorder.alike) < len(frames)
    assert alike > 1000
    assert mixed > 50


def test_what_a_subscriber_wants_comes_one_by_one() -> None:
    """The tap gets it before, as always."""
    subscriber = Subscriber()
    bench, recorder = Bench(subscriber), Recorder(subscriber)
    bench.router.add_tap(recorder)
    writer = FrameWriter(1)
    bench.take([message("a", writer=writer) for _ in range(20)])
    assert recorder.alike == []
    assert recorder.delivered_before == [0]
    assert subscriber.texts == ["a"] * 20
    bench.take([message("b", OTHER_TOPIC, writer=writer) for _ in range(20)])
    assert recorder.alike == [20]


def test_a_tap_that_is_full_after_alike_frames_holds_the_router() -> None:
    bench, tap = Bench(), Recorder()
    bench.router.add_tap(tap)
    bench.take([message("the first run tells where messages begin")])
    tap.is_full = True
    bench.take([message("a", writer=FrameWriter(1))] * 20)
    assert tap.alike == [20]
    assert bench.router.is_blocked


def test_frames_behind_alike_ones_are_read_on() -> None:
    """A frame of an unknown kind lies between them, and the last one is cut."""
    bench, tap = Bench(), Recorder()
    bench.router.add_tap(tap)
    writer = FrameWriter(1)
    frames = [b"".join(message("a", writer=writer)) for _ in range(40)]
    unknown = bytearray(frames[0])
    unknown[1] = 200
    data = b"".join([*frames[:19], unknown, *frames[19:]])
    bench.take_bytes(data[:-5], (0,))
    assert tap.frames == frames[:-1]
    bench.take_bytes(data[-5:], ())
    assert tap.frames == frames
