"""Plans of comparisons."""

from dataclasses import dataclass

from .trial import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan(Task):
    """A task, with the systems to compare and the sizes and numbers of subscribers to compare them at."""

    systems: tuple[str, ...]
    sizes: tuple[int, ...]
    """Message sizes in bytes."""
    fanouts: tuple[int, ...]
    """Numbers of subscribers."""
    loss: float
    """Probability that a packet misses a subscriber."""
    repeat: int
    """Runs of each system at each size and fan-out."""
