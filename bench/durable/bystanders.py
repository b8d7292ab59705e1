"""The cost of a cell for those who do not need it: publishers of messages that nobody stores."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ..comparison.trial import Task, TrialRunner
from ..networks.lan import Loopback
from ..peers.base import Deadline, PeerTimeoutError
from .fjm2_cell import SETTINGS
from .roles import RoleOptions
from .servers import cpu_s, until_resting
from .trial import data_folder, served

CELLS = {"no-cell": None, "fjm2-one": "fjm2-one", "fjm2": "fjm2"}
"""Cells beside the publisher and its subscriber, with the system that serves each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystander:
    """Result of a publisher of NON_PERSISTENT messages and a subscriber that is not durable."""

    msgs_per_s: float
    cpu_us: float
    """CPU time of publisher and subscriber for each message."""
    keepers_us: float
    """CPU time of all keepers for each message, which they do not keep."""


def measure_bystander(cell: str, options: RoleOptions, seconds: float) -> Bystander:
    """Publish NON_PERSISTENT messages to a subscriber on the bus of a cell, or on a bus without one."""
    deadline = Deadline(options.timeout_s)
    system = CELLS[cell]
    task = Task(
        form="stream",
        properties=0,
        round_trips=None,
        rate_bps=None,
        seconds=seconds,
        is_offloaded=True,
        is_verified=True,
        settings=SETTINGS,
        segment_bytes=8000,
    )
    with data_folder(options.folder) as folder, Loopback(1) as network:
        options = replace(options, folder=folder)
        with ExitStack() as serving:
            keepers: list[int] = []
            if system is not None:
                keepers = serving.enter_context(served(network.publisher, system, options, deadline))
                until_resting(keepers)
            before_s = sum(map(cpu_s, keepers))
            runner = TrialRunner(task, network, ports=iter((options.port,)))
            trial = asyncio.run(runner.run("fjm2-jms", options.size))
            used_s = sum(map(cpu_s, keepers)) - before_s
    if trial.fault:
        raise PeerTimeoutError(trial.fault)
    return Bystander(
        msgs_per_s=trial.msgs_per_s,
        cpu_us=trial.cpu_s_per_gb * options.size / 1e3,
        keepers_us=used_s * 1e6 / float(trial.processes[0].values["messages"]),
    )
