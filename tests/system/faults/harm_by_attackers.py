"""Harm by attackers: forged datagrams in the names of those who are on the bus."""

import subprocess
from collections.abc import Iterator

from history import Life
from scenario import Scenario
from stage import Stage

_GIVEN_UP_S = 12.0
"""Time after which a receiver that only says that it is alive is given up: 10 s, and what a busy machine adds."""


def forged_datagrams(stage: Stage) -> list[Life]:
    """Far-ahead DATA, SQUELCH, goodbyes and new instances come in the publisher's name, from two addresses.

    They come now and then. An attacker that outpaces a sender from the sender's own address, or imitates an idle one,
    can do what it wants: docs/security.md.
    """
    stage.add_hosts(4)
    stage.start(1, "subscribe")
    stage.start(2, "subscribe")
    stage.start_publisher(0, per_s=stage.random.choice([300, 3000]), persistent=stage.random.choice([0, 1]))
    stage.start_attacker(3, rate=stage.random.choice([3, 30]))
    stage.wait(6.0)
    stage.end_attackers()
    return stage.finish(settle_s=1.0)


def attack_is_told(lives: list[Life]) -> Iterator[str]:
    """Yield a text for each subscriber that was not told of messages in the publisher's name."""
    for life in lives:
        if life.role == "subscribe" and not any(told.code == "sender_impersonated" for told in life.told):
            yield f"{life.name} was not told that somebody sends in the publisher's name"


def false_answers(stage: Stage) -> list[Life]:
    """A subscriber dies, and somebody goes on to answer in its name without confirming anything."""
    buffers = "&stream_bytes=256KiB&window_bytes=256KiB"
    _, victim = stage.add_trio(hosts=4, per_s=600, size=2000, uri=buffers)
    attacker = stage.start_attacker(3, rate=0)
    stage.wait(2.0)
    _claim(attacker, victim.node_id)
    victim.kill()
    stage.wait(16.0)
    stage.end_attackers()
    return stage.finish()


def _claim(attacker: "subprocess.Popen[str]", node_id: int) -> None:
    assert attacker.stdin is not None
    attacker.stdin.write(f"claim {node_id}\n")
    attacker.stdin.flush()


def publisher_is_told(lives: list[Life]) -> Iterator[str]:
    """Yield a text if the publisher did not hear that a subscriber makes no progress, or heard it late."""
    (publisher,) = (life for life in lives if life.role == "publish")
    (killed_at,) = (life.killed_at for life in lives if life.killed_at < float("inf"))
    told = [each.at for each in publisher.told if "no progress" in each.text and each.at > killed_at]
    # The subscriber lacks progress from the first send that is held. A starved publisher comes to that late.
    waited = [at - max([killed_at, *(began for began, _, _ in publisher.began if began <= at)]) for at in told]
    if not any(after_s <= _GIVEN_UP_S for after_s in waited):
        yield f"{publisher.name} was told after {waited} s of waiting that the subscriber is not waited for"


ATTACKERS = (
    Scenario(forged_datagrams, may_lose=False, held_s_max=1.0, judge=attack_is_told),
    Scenario(false_answers, may_lose=False, held_s_max=_GIVEN_UP_S, judge=publisher_is_told),
)
