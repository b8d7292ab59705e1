"""Serial numbers: counters of the wire that wrap around."""


class Serial:
    """Arithmetic of an unsigned counter of `bits` bits, where half of all numbers lie ahead of any given one."""

    __slots__ = ("bits", "half", "mask")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.mask = (1 << bits) - 1
        self.half = 1 << (bits - 1)

    def add(self, number: int, step: int) -> int:
        """`number` moved on by `step`, which may be negative."""
        return (number + step) & self.mask

    def distance(self, start: int, end: int) -> int:
        """How far `end` is ahead of `start`: negative if behind, from -half to half."""
        gap = (end - start) & self.mask
        # Exactly half way round, the smaller number counts as the later one: libnorm's rule.
        if gap == self.half:
            return -self.half if start < end else self.half
        return gap if gap < self.half else gap - self.mask - 1

    def is_before(self, first: int, second: int) -> bool:
        """Whether `first` comes before `second`."""
        return self.distance(first, second) > 0


SEQUENCE = Serial(16)
OBJECT_ID = Serial(16)
