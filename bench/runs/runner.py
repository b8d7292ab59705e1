"""From cell to cell: make the network, run the system, enter what came of it."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial

from .. import peers
from ..comparison.trial import OURS, Contest, Line, Sample, Task, free_ports
from ..networks import namespaces
from ..networks.gateways import GatewayError, standing
from ..networks.selection import Sites, ground_of
from . import fec_cost, machine
from .matrix import Cell, Field, ends_of
from .plan import WAYS
from .result_folder import Book, figures_of

_NO_FAULT = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What a cell came to."""

    figures: Mapping[str, float]
    fault: str = _NO_FAULT
    lines: tuple[Line, ...] = ()

    def __str__(self) -> str:
        """For people."""
        if self.fault:
            return self.fault
        for name, text in (("msgs_per_s", "{:,.0f} messages/s"), ("p50_us", "p50 {:,.0f} us")):
            if name in self.figures:
                return text.format(self.figures[name])
        return f"{self.figures['encode_s'] * 1e3:.3g} ms"


@dataclass(slots=True)
class Summary:
    """What a run came to."""

    done: int = 0
    faults: list[str] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    """Why, by system."""


Told = Callable[[Cell, Result | None], None]


class Runner:
    """Runs the cells that it is given, and writes to its book."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._ports = free_ports()
        self.summary = Summary()

    def present(self, cells: Sequence[Cell]) -> list[Cell]:
        """Those whose systems are installed. The others are entered as missing."""
        lacks = {(cell.system, cell.layer): missing(cell) for cell in cells}
        for (system, layer), lack in lacks.items():
            if lack is not None:
                names = dict.fromkeys(cell.experiment.name for cell in cells if cell.system == system)
                self._book.enter_missing(", ".join(names), system, layer, lack, machine.description())
                self.summary.missing[system] = lack
        return [cell for cell in cells if lacks[cell.system, cell.layer] is None]

    async def run(self, cells: Sequence[Cell], told: Told) -> None:
        """All of them, network by network. `told` is called with each before it begins, and with its result after."""
        for ground, group in itertools.groupby(cells, key=lambda cell: cell.field):
            await self._run_on(ground, list(group), told)

    async def _run_on(self, field: Field | None, cells: list[Cell], told: Told) -> None:
        with nullcontext() if field is None else ground_of(field) as ground:
            for cell in cells:
                told(cell, None)
                result = _coded(cell) if ground is None else await self._measured(cell, ground)
                self._enter(cell, result)
                told(cell, result)

    async def _measured(self, cell: Cell, ground: namespaces.Lab) -> Result:
        around = partial(self._book.surroundings, cell)
        if not isinstance(ground, Sites):
            sample = await Contest(task_of(cell), ground, ports=self._ports, around=around).run(cell.system, cell.size)
            return _result(cell, sample, 0.0)
        port = next(self._ports)
        ground.use(cell.system)
        try:
            async with standing(ground, cell.system, port, cell.rate_bps, around) as cpu_s:
                before_s = cpu_s()
                contest = Contest(task_of(cell), ground, ports=iter((port,)), around=around)
                sample = await contest.run(ends_of(cell), cell.size)
                return _result(cell, sample, cpu_s() - before_s)
        except GatewayError as error:
            return Result({}, str(error))

    def _enter(self, cell: Cell, result: Result) -> None:
        self._book.enter(cell, result.figures, _labels(cell, result), result.lines)
        self.summary.done += 1
        if result.fault:
            self.summary.faults.append(f"{cell}: {result.fault}")


def missing(cell: Cell) -> str | None:
    """What a cell's system lacks here, or None."""
    if cell.experiment.task == "fec":
        return fec_cost.missing(cell.system)
    if cell.system in (*OURS, *WAYS):
        return None
    return peers.load(cell.system).missing()


def task_of(cell: Cell) -> Task:
    """What the processes of a cell's run are to do."""
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


def _result(cell: Cell, sample: Sample, gateways_cpu_s: float) -> Result:
    if sample.fault:
        return Result({}, sample.fault, sample.lines)
    own = figures_of(sample.lines[0].values)
    if cell.experiment.task == "round-trips":
        return Result(own, lines=sample.lines)
    others = [line.values for line in sample.lines[1:]]
    figures = own | {
        "msgs_per_s": sample.msgs_per_s,
        "gbit_per_s": sample.msgs_per_s * cell.size * 8e-9,
        "cpu_s": own["cpu_s"] + sum(line["cpu_s"] for line in others) + gateways_cpu_s,
    }
    figures["cpu_s_per_gb"] = figures["cpu_s"] / (own["bytes"] / 1e9)
    for name in ("lost", "duplicated", "corrupt", "out_of_order"):
        figures[name] = float(sum(line.get(name) or 0 for line in others))
    if cell.experiment.network == "wan":
        figures["gateway_cpu_s_per_gb"] = gateways_cpu_s / (own["bytes"] / 1e9)
    return Result(figures, lines=sample.lines)


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
    """How a system is configured, in words."""
    experiment = cell.experiment
    if experiment.task == "fec":
        return "one block, a parity symbol for every four source symbols"
    if experiment.network == "wan":
        return f"{_WAY_SETTINGS[cell.system]}; at the ends {ends_of(cell)}, ?{experiment.settings}"
    if cell.system in OURS:
        return f"?{experiment.settings}"
    return peers.load(cell.system).settings


_WAY_SETTINGS = {
    "fjm2d": "fjm2d at both ends of the line, sealed, wan.rate 95 % of the line's if that has one, carry always",
    "plain-relay": "a relay of datagrams, one by one, neither sealed nor paced",
    "direct": "a cable past the gateways, of the same rate and loss",
}
