"""Tests of the router's taps: they see every run before subscriptions do.

Without taps, the router does no extra work.
"""

from routing import OTHER, SENDER, Bench, Subscriber, message

from fjm2.messages.frame import Frame, FrameWriter
from fjm2.messages.header import DESTINATION_HASH


class Recorder:
    """A tap that keeps the frames of every run.

    It also keeps the number of messages that subscribers had received before each run.
    """

    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = subscribers
        self.runs: list[tuple[int, list[bytes]]] = []
        self.hashes: list[int] = []
        self.delivered_before: list[int] = []
        self.is_full = False

    def take_run(self, sender_id: int, frames: list[Frame]) -> None:
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
