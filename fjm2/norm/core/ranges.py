"""Serial numbers that wrap around."""


class Serial:
    """Arithmetic of a counter of `bits` bits that wraps. Half of all numbers are ahead of a number, half behind it."""

    __slots__ = ("bits", "half", "mask")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.mask = (1 << bits) - 1
        self.half = 1 << (bits - 1)

    def add(self, number: int, step: int) -> int:
        """Return `number` advanced by `step`, which may be negative."""
        return (number + step) & self.mask

    def distance(self, start: int, end: int) -> int:
        """Return how far `end` is ahead of `start`, from -half to half; negative if it is behind."""
        gap = (end - start) & self.mask
        # Exactly half way round, the smaller number counts as the later one, as in libnorm.
        if gap == self.half:
            return -self.half if start < end else self.half
        return gap if gap < self.half else gap - self.mask - 1

    def is_before(self, first: int, second: int) -> bool:
        """Return True if `first` comes before `second`."""
        return self.distance(first, second) > 0

    def unwrap(self, number: int, near: int) -> int:
        """Return the count without wraparound that `number` on the wire stands for: the one nearest to `near`."""
        return near + self.distance(near & self.mask, number)


SEQUENCE = Serial(16)
OBJECT_ID = Serial(16)
