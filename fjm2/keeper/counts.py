"""What a keeper counts, and the list of its counters and gauges."""

from dataclasses import dataclass


@dataclass(slots=True)
class KeeperCounts:
    """Counters of a keeper since its start."""

    frames_stored: int = 0
    """Messages taken to be stored, duplicates included."""
    frames_counted: int = 0
    """Messages of topics without durable subscriptions, which are counted and not kept."""
    frames_broken: int = 0
    """Messages dropped because their checksum was wrong."""
    frames_replayed: int = 0
    """Stored messages that were sent again to keepers that lacked them."""
    decisions_foreign: int = 0
    """Decisions dropped because they were those of another cell."""
    signals_refused: int = 0
    """Commands and acknowledgements of the cell that could not be sent."""
    takeovers: int = 0
    """Times that this keeper became the manager that serves."""
    conflicts: int = 0
    """Times that another cell was heard on the same bus."""
    commits: int = 0
    """Batches that reached the disk."""
