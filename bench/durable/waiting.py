"""Messages that wait for a durable subscriber: memory, restart, and the rate at which the subscriber catches up."""

import time
from dataclasses import dataclass, replace

from ..peers.base import Deadline
from .processes import running
from .roles import Role, RoleOptions
from .servers import resident_bytes, until_resting
from .trial import check, data_folder, one_host, served, subscribe


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Result of messages that wait while their subscriber is away."""

    stored_per_s: float
    """Messages divided by the time from the first send to the last confirmation."""
    resident_mb: float
    """Resident memory of the largest server when all messages wait."""
    restart_s: float
    """Time from the start of all servers until they serve again."""
    restarted_mb: float
    """Resident memory of the largest server after that."""
    caught_up_per_s: float
    """Messages divided by the time from the first delivery to the last acknowledged one."""


def measure_waiting(system: str, options: RoleOptions) -> Waiting:
    """Send all messages while the subscriber is away, restart all servers, and let the subscriber catch up."""
    deadline = Deadline(options.timeout_s)
    with data_folder(options.folder) as folder, one_host() as host:
        options = replace(options, folder=folder, warm_up=0)
        with served(host, system, options, deadline) as pids:
            subscribe(host, system, options, deadline)
            with running(host, system, Role.PUB, options) as pub:
                pub.line(deadline)  # warm
                until_resting(pids)
                pub.tell_to_go_on()
                sent = pub.line(deadline)
            resident_mb = _largest_mb(pids)
        began = time.monotonic()
        with served(host, system, options, deadline) as pids:
            restart_s = time.monotonic() - began
            restarted_mb = _largest_mb(pids)
            with running(host, system, Role.SUB, options) as sub:
                sub.line(deadline)  # ready
                received = sub.line(deadline)
    check([received], options.count)
    return Waiting(
        stored_per_s=options.count * 1e9 / (sent["ended_ns"] - sent["began_ns"]),
        resident_mb=resident_mb,
        restart_s=restart_s,
        restarted_mb=restarted_mb,
        caught_up_per_s=options.count * 1e9 / (received["ended_ns"] - received["began_ns"]),
    )


def _largest_mb(pids: list[int]) -> float:
    return max(map(resident_bytes, pids)) / 1e6
