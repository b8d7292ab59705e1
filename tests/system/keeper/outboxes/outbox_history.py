"""Checks what came of the messages of a publisher with an outbox that was killed again and again."""

from typing import Final

LIFE: Final = 1_000_000
"""Numbers of each life begin with a multiple of it."""


def faults_of(accepted: list[list[int]], received: list[int]) -> list[str]:
    """Return what is wrong with messages that were received, by the numbers whose sends returned in each life.

    A send that was under way when its program was killed may have been accepted, and then all before it were.
    """
    faults: list[str] = []
    if len(received) != len(set(received)):
        faults.append(f"{len(received) - len(set(received))} messages came twice")
    if received != sorted(received):
        place = next(at for at in range(1, len(received)) if received[at] < received[at - 1])
        faults.append(f"out of order: {received[place - 3 : place + 3]}")
    for life, numbers in enumerate(accepted):
        own = [number for number in received if number // LIFE == life]
        if own != list(range(life * LIFE, life * LIFE + len(own))):
            faults.append(f"life {life} has holes")
        if len(own) < len(numbers):
            faults.append(f"life {life} lost {len(numbers) - len(own)} of {len(numbers)} messages")
    return faults
