"""Statistics of a keeper: the list of its counters and gauges, and `KeeperCounts`, in which it counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fjm2.base.instruments import counter, gauge

KEEPER_COUNTERS: Final = (
    counter(
        "frames_stored",
        "messages",
        "Messages given to the cell to be stored, duplicates included.",
        metric="fjm2_keeper_stored_messages_total",
    ),
    counter(
        "frames_counted",
        "messages",
        "Messages of topics without durable subscriptions, which are counted and not kept.",
        metric="fjm2_keeper_counted_messages_total",
    ),
    counter(
        "frames_broken",
        "messages",
        "Messages dropped because their checksum was wrong.",
        metric="fjm2_keeper_broken_messages_total",
    ),
    counter(
        "frames_replayed",
        "messages",
        "Stored messages sent again to keepers that lacked them.",
        metric="fjm2_keeper_replayed_messages_total",
    ),
    counter(
        "decisions_foreign",
        "decisions",
        "Decisions dropped because they were those of another cell.",
        metric="fjm2_cell_foreign_decisions_total",
    ),
    counter(
        "signals_refused",
        "messages",
        "Commands and acknowledgements of the cell that could not be sent.",
        metric="fjm2_keeper_refused_signals_total",
    ),
    counter(
        "takeovers",
        "times",
        "Times that this keeper became the manager that serves.",
        metric="fjm2_cell_takeovers_total",
    ),
    counter(
        "conflicts",
        "times",
        "Times that another cell was heard on the same bus.",
        metric="fjm2_cell_conflicts_total",
    ),
    counter("commits", "batches", "Batches that reached the disk.", metric="fjm2_keeper_commits_total"),
)
KEEPER_INSTRUMENTS: Final = (
    *KEEPER_COUNTERS,
    counter("syncs", "times", "Times that the disk was asked to sync.", metric="fjm2_keeper_syncs_total"),
    counter("sync_seconds", "s", "Time that syncs took, all together.", metric="fjm2_keeper_sync_seconds_total"),
    gauge("sync_longest_s", "s", "Time that the longest sync took.", metric="fjm2_keeper_longest_sync_seconds"),
    gauge("is_serving", "bool", "True for the manager that serves.", metric="fjm2_cell_serving"),
    gauge("epoch", "epochs", "Newest epoch of the cell that this keeper knows.", metric="fjm2_cell_epoch"),
    gauge("store_bytes", "bytes", "Bytes that the store takes on disk.", metric="fjm2_keeper_disk_bytes"),
    gauge("live_bytes", "bytes", "Bytes of the messages that the store keeps.", metric="fjm2_keeper_live_bytes"),
    gauge("live_frames", "messages", "Messages that the store keeps.", metric="fjm2_keeper_live_messages"),
    gauge("sessions", "sessions", "Sessions of clients that are open.", metric="fjm2_cell_sessions"),
    gauge("subscriptions", "subscriptions", "Durable and shared subscriptions.", metric="fjm2_cell_subscriptions"),
    gauge("waiting_bytes", "bytes", "Bytes that wait for the disk in memory.", metric="fjm2_keeper_waiting_bytes"),
    gauge("last_values", "messages", "Last values, and removals of some.", metric="fjm2_keeper_last_values"),
    counter(
        "values_refused",
        "messages",
        "Last values that were not kept because there was no room.",
        metric="fjm2_keeper_refused_values_total",
    ),
    counter(
        "drops",
        "messages",
        "Messages of the cell that were dropped, by reason.",
        metric="fjm2_cell_dropped_messages_total",
        label="reason",
    ),
    counter(
        "refusals",
        "runs",
        "Runs of messages that were not stored, by reason.",
        metric="fjm2_keeper_refused_runs_total",
        label="reason",
    ),
)
"""All counters and gauges of a keeper."""


@dataclass(slots=True)
class KeeperCounts:
    """Counters of a keeper since it started."""

    # Fields of KeeperCounts: begin (make counters)
    frames_stored: int = 0
    """Messages given to the cell to be stored, duplicates included."""
    frames_counted: int = 0
    """Messages of topics without durable subscriptions, which are counted and not kept."""
    frames_broken: int = 0
    """Messages dropped because their checksum was wrong."""
    frames_replayed: int = 0
    """Stored messages sent again to keepers that lacked them."""
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
    # Fields of KeeperCounts: end


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperStatistics:
    """Counters of a keeper so far, and its present state."""

    # Fields of KeeperStatistics: begin (make counters)
    frames_stored: int
    """Messages given to the cell to be stored, duplicates included."""
    frames_counted: int
    """Messages of topics without durable subscriptions, which are counted and not kept."""
    frames_broken: int
    """Messages dropped because their checksum was wrong."""
    frames_replayed: int
    """Stored messages sent again to keepers that lacked them."""
    decisions_foreign: int
    """Decisions dropped because they were those of another cell."""
    signals_refused: int
    """Commands and acknowledgements of the cell that could not be sent."""
    takeovers: int
    """Times that this keeper became the manager that serves."""
    conflicts: int
    """Times that another cell was heard on the same bus."""
    commits: int
    """Batches that reached the disk."""
    syncs: int
    """Times that the disk was asked to sync."""
    sync_seconds: float
    """Time that syncs took, all together."""
    sync_longest_s: float
    """Time that the longest sync took."""
    is_serving: bool
    """True for the manager that serves."""
    epoch: int
    """Newest epoch of the cell that this keeper knows."""
    store_bytes: int
    """Bytes that the store takes on disk."""
    live_bytes: int
    """Bytes of the messages that the store keeps."""
    live_frames: int
    """Messages that the store keeps."""
    sessions: int
    """Sessions of clients that are open."""
    subscriptions: int
    """Durable and shared subscriptions."""
    waiting_bytes: int
    """Bytes that wait for the disk in memory."""
    last_values: int
    """Last values, and removals of some."""
    values_refused: int
    """Last values that were not kept because there was no room."""
    drops: Mapping[str, int]
    """Messages of the cell that were dropped, by reason."""
    refusals: Mapping[str, int]
    """Runs of messages that were not stored, by reason."""
    # Fields of KeeperStatistics: end
