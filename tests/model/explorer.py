"""Breadth-first search through all states of a model, with the shortest way to the first bad one.

A state is a tuple of hashable parts. Each different part is stored once and has a number. A visited state is kept as
one integer, made of its parts' numbers, so that a million states take about 150 MB.
"""

import gc
from array import array
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

STATES_MAX = 6_000_000
"""The search ends here: about 1 GB."""
_PART_BITS = 22
_PART_MASK = (1 << _PART_BITS) - 1

State = tuple[Any, ...]
"""Parts of a state: one for each keeper, and one for the rest. Each is a tuple."""
Step = tuple[Any, ...]
"""Name of a step, and the keepers or numbers that it concerns."""


class Model(Protocol):
    """Rules to explore. One instance is one case: a rule left out, and bounds."""

    rule: str
    """The rule that is left out, or `none`."""

    def start(self) -> State:
        """Return the state at the beginning."""

    def steps(self, state: State) -> Iterator[tuple[Step, State]]:
        """Yield every step that is possible, with the state that it leads to."""

    def violation(self, state: State) -> str | None:
        """Return the name of a property that the state violates."""

    def canonical(self, state: State) -> State:
        """Return the representative of all states that differ from this one only by the names of equals."""


class Found(NamedTuple):
    """Result of a search."""

    violated: str | None
    """The violated property, `limit` if there are more than STATES_MAX states, or None if every state is good."""
    steps: int
    """Length of the shortest way to the bad state."""
    states: int
    path: list[State]
    """Representatives of the states on the way, the first included."""


class _Numbering:
    """Numbers of the parts, and states as integers."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def pack(self, state: tuple[Any, ...]) -> int:
        packed = 1
        for part in state:
            number = self._numbers.get(part)
            if number is None:
                number = self._numbers[part] = len(self._parts)
                self._parts.append(part)
                if number > _PART_MASK:
                    raise OverflowError(f"more than {_PART_MASK} different parts of states: expected a smaller model")
            packed = packed << _PART_BITS | number
        return packed

    def unpack(self, packed: int) -> tuple[Any, ...]:
        parts = []
        while packed > 1:
            parts.append(self._parts[packed & _PART_MASK])
            packed >>= _PART_BITS
        return tuple(reversed(parts))


def explore(model: Model, states_max: int = STATES_MAX) -> Found:
    """Visit all states that can be reached, up to the first that violates a property."""
    was_collecting = gc.isenabled()
    gc.disable()  # Millions of tuples, no cycles: each visit of the collector would be for nothing.
    try:
        return _explore(model, states_max)
    finally:
        if was_collecting:
            gc.enable()


def _explore(model: Model, states_max: int) -> Found:
    numbering = _Numbering()
    pack, unpack = numbering.pack, numbering.unpack
    steps, canonical, violation = model.steps, model.canonical, model.violation
    start = canonical(model.start())
    if violated := violation(start):
        return Found(violated, 0, 1, [start])
    first = pack(start)
    numbers = {first: 0}
    came_from = array("I", [0])
    queue = deque([first])
    place = 0
    while queue:
        for _, following in steps(unpack(queue.popleft())):
            representative = canonical(following)
            packed = pack(representative)
            if packed in numbers:
                continue
            numbers[packed] = len(came_from)
            came_from.append(place)
            queue.append(packed)
            if violated := violation(representative):
                path = [unpack(each) for each in _path(list(numbers), came_from)]
                return Found(violated, len(path) - 1, len(came_from), path)
        if len(came_from) > states_max:
            return Found("limit", 0, len(came_from), [])
        place += 1
    return Found(None, 0, len(came_from), [])


def _path(order: list[int], came_from: "array[int]") -> list[int]:
    """Return the way from the first state to the last one visited."""
    place = len(order) - 1
    path = [order[place]]
    while place:
        place = came_from[place]
        path.append(order[place])
    return path[::-1]


def replay(model: Model, path: list[State]) -> Iterator[tuple[Step, State]]:
    """Yield the steps of a path with the states in which each keeper keeps its name."""
    state = model.start()
    for target in path[1:]:
        for step, following in model.steps(state):
            if model.canonical(following) == target:
                state = following
                yield step, state
                break
        else:
            raise AssertionError(f"no step leads from {state} to {target}: the model's symmetry is wrong")
