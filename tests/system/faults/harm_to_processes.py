"""Harm to processes: they are killed, stopped, or come and go."""

from collections import Counter
from collections.abc import Iterator

from history import Life
from scenario import Bound, Scenario
from stage import Stage

_UNCONFIRMED = "UnconfirmedError"
_SETTLED_S = 0.5
"""Time after the start of a subscriber for which its joining may be felt."""


def subscriber_killed(stage: Stage) -> list[Life]:
    """A subscriber is killed, and started again, some times."""
    _, victim = stage.add_trio(per_s=stage.random.choice([600, 6000]))
    for _ in range(3):
        stage.wait(0.5, 1.5)
        victim.kill()
        stage.wait(0.2, 1.0)
        victim = stage.start(2, "subscribe")
    stage.wait(1.0)
    return stage.finish()


def many_kills(stage: Stage) -> list[Life]:
    """A subscriber is killed again and again while a publisher sends so fast that its buffers are soon full.

    In between, others come and leave: that takes the machine as much time as the start after a kill.
    """
    size, buffers = stage.random.choice([(1000, "256KiB"), (4000, "1MiB")])
    _, victim = stage.add_trio(per_s=3000, size=size, uri=f"&stream_bytes={buffers}&window_bytes={buffers}")
    stage.wait(1.0)
    for _ in range(10):
        victim.kill()
        stage.wait(1.0, 2.0)
        victim = stage.start(2, "subscribe")
        stage.wait(_SETTLED_S)
        guest = stage.start(2, "subscribe")
        stage.wait(1.0, 2.0)
        guest.tell("close")
        guest.end()
    return stage.finish()


def hold_ups(lives: list[Life]) -> dict[str, list[float]]:
    """Return for each kill the longest time in seconds that the first subscriber got nothing until the next start.

    `without_kills_s` has the same for the times when others came and left: the share of the machine.
    """
    witness, victim, *others = sorted(
        (life for life in lives if life.role == "subscribe"), key=lambda each: each.ready_at
    )
    figures: dict[str, list[float]] = {"held_up_s": [], "without_kills_s": []}
    for heir, guest in zip(others[::2], others[1::2], strict=True):
        settled_at = heir.ready_at + _SETTLED_S
        figures["held_up_s"].append(_longest_lull(witness, victim.killed_at, settled_at))
        figures["without_kills_s"].append(_longest_lull(witness, settled_at, guest.closed_at))
        victim = heir
    return figures


def _longest_lull(witness: Life, start: float, end: float) -> float:
    """Return the longest lull that ended or began between two times, in seconds; 0 if all were too short to note."""
    return max((seconds for at, seconds in witness.lulls if start <= at and at - seconds < end), default=0.0)


def subscriber_paused(stage: Stage) -> list[Life]:
    """A subscriber is stopped for up to a second, some times: it loses nothing."""
    _, victim = stage.add_trio(per_s=3000, size=stage.random.choice([200, 8000]))
    for _ in range(3):
        stage.wait(0.5, 1.0)
        victim.stop()
        stage.wait(0.1, 1.0)
        victim.go_on()
    stage.wait(1.0)
    return stage.finish(settle_s=1.0)


def subscriber_hung(stage: Stage) -> list[Life]:
    """A subscriber is stopped for longer than it is waited for, and goes on."""
    _, victim = stage.add_trio(per_s=6000, size=4000)
    stage.wait(0.5, 1.5)
    victim.stop()
    stage.wait(6.0, 8.0)
    victim.go_on()
    stage.wait(2.0)
    return stage.finish(settle_s=1.0)


def publisher_killed(stage: Stage) -> list[Life]:
    """One of two publishers is killed while both send, and started again."""
    victim, _ = stage.add_trio(per_s=1500)
    stage.start_publisher(0, per_s=1500)
    stage.wait(0.5, 1.5)
    victim.kill()
    stage.start_publisher(0, per_s=1500)
    stage.wait(1.0)
    return stage.finish()


def publisher_paused(stage: Stage) -> list[Life]:
    """One of two publishers is stopped, shortly and for long, while both send: nothing is lost."""
    victim, _ = stage.add_trio(per_s=3000, size=1000, persistent=stage.random.choice([0, 1]))
    stage.start_publisher(0, per_s=1500)
    for most_s in stage.random.sample([0.3, 1.0, 8.0], 3):
        stage.wait(0.3, 1.0)
        victim.stop()
        stage.wait(most_s / 3, most_s)
        victim.go_on()
    stage.wait(1.0)
    return stage.finish(settle_s=1.0)


def comings_and_goings(stage: Stage) -> list[Life]:
    """Subscribers come and close cleanly while a publisher sends."""
    stage.add_hosts(3)
    stage.start(1, "subscribe")
    stage.start_publisher(0, per_s=3000)
    for _ in range(6):
        guest = stage.start(2, "subscribe")
        stage.wait(0.0, 0.5)
        guest.tell("close")
        guest.end()
    return stage.finish()


def transaction_cut(stage: Stage) -> list[Life]:
    """Two publishers are killed while they commit: each subscriber gets all of a transaction or nothing."""
    slow = "&rate=8mbit"
    settings = {"transaction": 60, "size": 4000, "uri": slow}  # a commit takes half a second
    victim, _ = stage.add_trio(**settings)
    other = stage.start_publisher(0, **settings)
    stage.start_publisher(0, transaction=2)
    stage.wait(1.0, 3.0)
    victim.kill()
    stage.wait(0.0, 2.0)
    other.kill()
    stage.wait(8.5)
    return stage.finish()


def persistent_outages(stage: Stage) -> list[Life]:
    """The subscriber of a publisher of persistent messages is killed and started again: an error for each outage."""
    _, victim = stage.add_trio(per_s=stage.random.choice([300, 3000]), persistent=1)
    for _ in range(3):
        stage.wait(0.5, 1.5)
        victim.kill()
        stage.wait(0.2, 8.0)
        victim = stage.start(2, "subscribe")
    stage.wait(8.0)
    return stage.finish()


def reports_of_outages(lives: list[Life]) -> Iterator[str]:
    """Yield a text for each killed subscriber of which the publisher was not told once, and once with a summary."""
    (publisher,) = (life for life in lives if life.role == "publish")
    told = [told for told in publisher.told if told.kind == _UNCONFIRMED]
    begins = Counter(node for each in told if not each.is_summary for node in each.nodes)
    ends = Counter(node for each in told if each.is_summary for node in each.nodes)
    for life in lives:
        if life.role == "subscribe":
            expected = int(life.killed_at < float("inf"))
            found = begins[life.node_id], ends[life.node_id]
            if found != (expected, expected):
                yield f"{life.name}: {found[0]} errors and {found[1]} summaries of its outage, expected {expected} each"


PROCESSES = (
    Scenario(subscriber_killed, may_lose=False, held_s_max=1.0),
    Scenario(many_kills, may_lose=False, measure=hold_ups, bounds=(Bound("held_up_s", 0.3, "without_kills_s"),)),
    Scenario(subscriber_paused, may_lose=False, held_s_max=1.0),
    Scenario(subscriber_hung, may_lose=True, held_s_max=1.0),
    Scenario(publisher_killed, may_lose=True, held_s_max=1.0),
    Scenario(publisher_paused, may_lose=False, held_s_max=1.0),
    Scenario(comings_and_goings, may_lose=False, held_s_max=0.5),
    Scenario(transaction_cut, may_lose=True),
    Scenario(persistent_outages, may_lose=False, held_s_max=1.0, judge=reports_of_outages),
)
