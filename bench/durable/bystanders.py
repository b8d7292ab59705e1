"""The cost of a cell for those who do not need it: publishers of messages that nobody stores."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from ..comparison.trial import Task, TrialRunner
from ..networks.lan import Loopback
from ..networks.network import Network
from ..peers.base import Deadline, PeerTimeoutError
from .fjm2_cell import SETTINGS, Fjm2Cell, until_serving
from .roles import RoleOptions
from .servers import cpu_s, until_resting
from .trial import data_folder

CELLS = {"no-cell": 0, "fjm2-one": 1, "fjm2": 3}
"""Cells beside the publisher and its subscriber, with the number of keepers of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystander:
    """Result of a publisher of NON_PERSISTENT messages and a subscriber that is not durable."""

    msgs_per_s: float
    cpu_us: float
    """CPU time of publisher and subscriber for each message."""
    keepers_us: float
    """CPU time of all keepers for each message, which they do not keep."""


@dataclass(frozen=True, slots=True)
class CellBus:
    """A bus in a network of its own, and the process ids of the keepers there."""

    network: Network
    keepers: list[int]


@contextmanager
def cell_buses(options: RoleOptions) -> Iterator[dict[str, CellBus]]:
    """Make a bus for each of `CELLS`. The cells are founded at the same time: a keeper listens for seconds first.

    A cell that rests takes too little to disturb what is measured on another bus.
    """
    deadline = Deadline(options.timeout_s)
    with ExitStack() as stack:
        buses, cells = {}, []
        for name, size in CELLS.items():
            network = stack.enter_context(Loopback(1))
            buses[name] = CellBus(network, [])
            if size:
                folder = stack.enter_context(data_folder(options.folder))
                task = replace(options, folder=folder, warm_up=0, count=0)
                keepers = stack.enter_context(Fjm2Cell(name, size).started(task, network.publisher))
                buses[name].keepers.extend(keeper.pid for keeper in keepers)
                cells.append(keepers)
        for keepers in cells:
            until_serving(keepers, deadline)
        until_resting([pid for bus in buses.values() for pid in bus.keepers])
        yield buses


def measure_bystander(bus: CellBus, options: RoleOptions, seconds: float) -> Bystander:
    """Publish NON_PERSISTENT messages to a subscriber on a bus."""
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
    before_s = sum(map(cpu_s, bus.keepers))
    runner = TrialRunner(task, bus.network, ports=iter((options.port,)))
    trial = asyncio.run(runner.run("fjm2-jms", options.size))
    used_s = sum(map(cpu_s, bus.keepers)) - before_s
    if trial.fault:
        raise PeerTimeoutError(trial.fault)
    return Bystander(
        msgs_per_s=trial.msgs_per_s,
        cpu_us=trial.cpu_s_per_gb * options.size / 1e3,
        keepers_us=used_s * 1e6 / float(trial.processes[0].values["messages"]),
    )
