"""Harm by consumers that are slow, not read, or out of disk."""

from collections.abc import Iterator

from history import Life
from scenario import Scenario
from stage import Stage

_SLOW_S = 40.0
"""Time that a slow consumer may take for 32 MiB on a busy machine: 4,000 messages."""


def unread_consumer(stage: Stage) -> list[Life]:
    """A consumer that nobody reads does not stop the others for good."""
    stage.add_trio({"unread": 1, "messages_max": 1000}, per_s=3000, size=2000)
    stage.wait(3.0, 5.0)
    return stage.finish(settle_s=1.0)


def slow_consumer(stage: Stage) -> list[Life]:
    """A consumer that takes long for each message holds the sender back, and loses nothing.

    The sender closes while the consumer is far behind, and has to be told to wait so long: the consumer's process asks
    for more, and so shows progress, only once the consumer has taken half of the 64 MiB that wait in front of it.
    """
    work_ms, messages_max = stage.random.choice([0.5, 2.0]), stage.random.choice([100, 2000])
    consumer = {"work_ms": work_ms, "messages_max": messages_max}
    stage.add_trio(consumer, per_s=2000, size=8000, close_timeout_s=_SLOW_S)
    stage.wait(7.0, 9.0)
    return stage.finish(settle_s=1.0)


def dropping_consumer(stage: Stage) -> list[Life]:
    """A full consumer drops: others are not held up, and each gap is flagged."""
    overflow = stage.random.choice(["drop_oldest", "drop_newest"])
    stage.add_trio({"work_ms": 1.0, "messages_max": 100, "overflow": overflow}, per_s=3000)
    stage.wait(2.0, 4.0)
    return stage.finish(settle_s=1.0)


def full_disk(stage: Stage) -> list[Life]:
    """A file comes that does not fit on a subscriber's disk, twice, between messages."""
    stage.add_hosts(3)
    folders = {host: stage.folder / f"files{host}" for host in (1, 2)}
    for folder in folders.values():
        folder.mkdir()
    large, small = 16 << 20, 1 << 20
    stage.start(1, "subscribe", uri=f"&files_directory={folders[1]}", file_bytes=1)
    stage.start(2, "subscribe", uri=f"&files_directory={folders[2]}", file_bytes=1, tmpfs=folders[2])
    publisher = stage.start_publisher(0, per_s=600, file_bytes=large, persistent=1)
    other = stage.start_publisher(0, per_s=600, file_bytes=small, persistent=1)
    for _ in range(2):
        stage.wait(0.3, 1.0)
        publisher.tell("file")
        stage.wait(0.0, 1.0)
        other.tell("file")
    stage.wait(4.0)
    return stage.finish(settle_s=1.0)


def files_arrive_where_there_is_room(lives: list[Life]) -> Iterator[str]:
    """Yield a text for each file that did not come to the subscriber with room, or came to the one without."""
    large, small = (life for life in lives if life.role == "publish")
    roomy, tight = (life for life in lives if life.role == "subscribe")
    if sorted(roomy.files) != sorted(large.files + small.files):
        yield f"{roomy.name} got files {roomy.files}, although it has room for all"
    if surprises := set(large.files) & set(tight.files):
        yield f"{tight.name} got files {surprises}, for which it has no room"


CONSUMERS = (
    Scenario(slow_consumer, may_lose=False),
    Scenario(unread_consumer, may_lose=True),
    Scenario(dropping_consumer, may_lose=True, held_s_max=1.0),
    Scenario(full_disk, may_lose=False, judge=files_arrive_where_there_is_room),
)
