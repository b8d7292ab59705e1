"""The runner of a plan: makes each network, runs the systems in it, and records the results."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from .. import peers
from ..comparison.trial import OURS, ProcessResult, Task, Trial, TrialRunner, free_ports
from ..networks.gateways import GatewayError, running_gateways
from ..networks.network import Network
from ..networks.spec import NetworkSpec
from ..networks.wan import Wan
from . import fec_cost, machine
from .matrix import Cell, end_system
from .plan import WAYS
from .result_folder import ResultFolder, figures_of

_NO_FAULT = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a cell."""

    figures: Mapping[str, float]
    fault: str = _NO_FAULT
    processes: tuple[ProcessResult, ...] = ()

    def __str__(self) -> str:
        """Describe the result for people."""
        if self.fault:
            return self.fault
        for name, text in (("msgs_per_s", "{:,.0f} messages/s"), ("p50_us", "p50 {:,.0f} us")):
            if name in self.figures:
                return text.format(self.figures[name])
        return f"{self.figures['encode_s'] * 1e3:.3g} ms"


@dataclass(slots=True)
class Summary:
    """The outcome of all cells."""

    done: int = 0
    """Cells that were run, with or without a fault."""
    faults: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Systems that are not installed, and the reason of each."""


Progress = Callable[[Cell, Result | None], None]
"""Callback that gets each cell twice: before it is run, with None, and after it, with the result."""


class Runner:
    """Runner of cells, which writes their results to a folder."""

    def __init__(self, results: ResultFolder) -> None:
        self._results = results
        self._ports = free_ports()
        self.summary = Summary()

    def present(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells whose systems are installed. Record the other systems as missing."""
        lacks = {(cell.system, cell.layer): missing(cell) for cell in cells}
        for (system, layer), lack in lacks.items():
            if lack is not None:
                names = dict.fromkeys(cell.experiment.name for cell in cells if cell.system == system)
                self._results.write_missing(", ".join(names), system, layer, lack, machine.description())
                self.summary.missing[system] = lack
        return [cell for cell in cells if lacks[cell.system, cell.layer] is None]

    async def run(self, cells: Sequence[Cell], progress: Progress) -> None:
        """Run all cells, one network after another."""
        for network, group in itertools.groupby(cells, key=lambda cell: cell.network):
            await self._run_on(network, list(group), progress)

    async def _run_on(self, spec: NetworkSpec | None, cells: list[Cell], progress: Progress) -> None:
        with nullcontext() if spec is None else spec.open() as network:
            for cell in cells:
                progress(cell, None)
                result = _coded(cell) if network is None else await self._measured(cell, network)
                self._write(cell, result)
                progress(cell, result)

    async def _measured(self, cell: Cell, network: Network) -> Result:
        environment_of = partial(self._results.environment_of, cell)
        task = task_of(cell)
        if not isinstance(network, Wan):
            runner = TrialRunner(task, network, ports=self._ports, environment_of=environment_of)
            return _result(cell, await runner.run(cell.system, cell.size), 0.0)
        port = next(self._ports)
        network.use(cell.system)
        try:
            async with running_gateways(network, cell.system, port, cell.rate_bps, environment_of) as cpu_s:
                before_s = cpu_s()
                runner = TrialRunner(task, network, ports=iter((port,)), environment_of=environment_of)
                trial = await runner.run(end_system(cell), cell.size)
                return _result(cell, trial, cpu_s() - before_s)
        except GatewayError as error:
            return Result({}, str(error))

    def _write(self, cell: Cell, result: Result) -> None:
        self._results.write(cell, result.figures, _labels(cell, result), result.processes)
        self.summary.done += 1
        if result.fault:
            self.summary.faults.append(f"{cell}: {result.fault}")


def missing(cell: Cell) -> str | None:
    """Return the reason why a cell's system cannot run on this machine, or None if it can."""
    if cell.experiment.task == "fec":
        return fec_cost.missing(cell.system)
    if cell.system in (*OURS, *WAYS):
        return None
    return peers.load(cell.system).missing()


def task_of(cell: Cell) -> Task:
    """Return the task of the processes of a cell's run."""
    experiment = cell.experiment
    return Task(
        form=experiment.object,
        properties=experiment.properties,
        round_trips=experiment.round_trips if experiment.task == "round-trips" else None,
        rate_bps=cell.rate_bps,
        seconds=experiment.seconds,
        is_offloaded=experiment.offload,
        is_verified=experiment.verify,
        settings=experiment.settings,
        segment_bytes=experiment.segment_bytes,
    )


def _coded(cell: Cell) -> Result:
    assert cell.symbol is not None
    return Result(fec_cost.measure(cell.system, cell.size, cell.symbol))


def _result(cell: Cell, trial: Trial, gateways_cpu_s: float) -> Result:
    if trial.fault:
        return Result({}, trial.fault, trial.processes)
    own = figures_of(trial.processes[0].values)
    if cell.experiment.task == "round-trips":
        return Result(own, processes=trial.processes)
    others = [process.values for process in trial.processes[1:]]
    figures = own | {
        "msgs_per_s": trial.msgs_per_s,
        "gbit_per_s": trial.msgs_per_s * cell.size * 8e-9,
        "cpu_s": own["cpu_s"] + sum(line["cpu_s"] for line in others) + gateways_cpu_s,
    }
    figures["cpu_s_per_gb"] = figures["cpu_s"] / (own["bytes"] / 1e9)
    for name in ("lost", "duplicated", "corrupt", "out_of_order"):
        figures[name] = float(sum(line.get(name) or 0 for line in others))
    if cell.experiment.network == "wan":
        figures["gateway_cpu_s_per_gb"] = gateways_cpu_s / (own["bytes"] / 1e9)
    return Result(figures, processes=trial.processes)


def _labels(cell: Cell, result: Result) -> dict[str, str]:
    experiment = cell.experiment
    labels = {
        **machine.description(),
        "load": machine.load(),
        "task": experiment.task,
        "network": experiment.network,
        "version": machine.version_of(cell.system),
        "settings": settings_of(cell),
        "offload": "on" if experiment.offload and not cell.loss else "off",
        "verified": "yes" if experiment.verify else "no",
    }
    if experiment.properties:
        labels["properties"] = str(experiment.properties)
    if cell.symbol is not None:
        labels["symbol_bytes"] = str(cell.symbol)
    if result.fault:
        labels["fault"] = result.fault
    return labels


def settings_of(cell: Cell) -> str:
    """Return a description of a system's settings, for people."""
    experiment = cell.experiment
    if experiment.task == "fec":
        return "one block, a parity symbol for every four source symbols"
    if experiment.network == "wan":
        return f"{_WAY_SETTINGS[cell.system]}; at the ends {end_system(cell)}, ?{experiment.settings}"
    if cell.system in OURS:
        return f"?{experiment.settings}"
    return peers.load(cell.system).settings


_WAY_SETTINGS = {
    "fjm2d": "fjm2d at both ends of the line, encrypted, wan.rate 95 % of a limited line, carry always",
    "plain-relay": "a relay that forwards datagrams one by one, neither encrypted nor paced",
    "direct": "a cable that bypasses the gateways, with the same rate and loss",
}
