"""A plan laid out: cells, each of which is one run, and the networks that they take place in."""

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..comparison.trial import LAYER_OF, layer_of
from .plan import Experiment, RunPlan

_START_S = {"fjm2d": 5.0, "plain-relay": 3.0, "activemq": 6.0, "activemq-stomp": 6.0, "jgroups": 5.0}
"""What it takes to have a run begin and end, beside the time for sending: a guess, for the time left."""
_START_OTHERS_S = 2.0
_ROUND_TRIP_S = 0.0003
_FEC_S = 0.2


@dataclass(frozen=True, slots=True)
class Field:
    """A network that a group of cells shares."""

    network: str
    fanout: int
    loss: float
    rate_bps: float | None
    is_offloaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run of one system."""

    experiment: Experiment
    system: str
    layer: str
    size: int
    fanout: int
    loss: float
    rate_bps: float | None
    symbol: int | None
    turn: int

    @property
    def scenario(self) -> str | None:
        return self.experiment.scenario or (None if self.symbol is None else f"symbols-{self.symbol}")

    @property
    def field(self) -> Field | None:
        """None where no network is needed."""
        if self.experiment.task == "fec":
            return None
        experiment = self.experiment
        return Field(experiment.network, self.fanout, self.loss, self.rate_bps, experiment.offload)

    @property
    def name(self) -> str:
        """A word that tells it from all others of the plan, of the letters that a run's id may have."""
        parts = [self.experiment.name, self.system, self.layer, f"{self.size}B", f"x{self.fanout}"]
        parts += [f"loss{self.loss:g}"] if self.loss else []
        parts += [] if self.rate_bps is None else [f"{self.rate_bps / 1e6:g}mbit"]
        parts += [] if self.symbol is None else [f"symbols{self.symbol}"]
        return ".".join([*parts, str(self.turn)])

    @property
    def key(self) -> str:
        """The same, with a check of all settings: what was measured with others is not this cell."""
        experiment = self.experiment
        settings = (
            experiment.task,
            self.scenario,
            self.field,
            experiment.round_trips,
            experiment.properties,
            experiment.seconds,
            experiment.object,
            experiment.settings,
            experiment.segment_bytes,
            experiment.verify,
        )
        return f"{self.name}-{zlib.crc32(repr(settings).encode()):08x}"

    @property
    def expected_s(self) -> float:
        """How long it may take."""
        if self.experiment.task == "fec":
            return _FEC_S
        start_s = _START_S.get(self.system, _START_OTHERS_S) + 0.3 * self.fanout
        if self.experiment.task == "round-trips":
            return start_s + _ROUND_TRIP_S * self.experiment.round_trips
        return start_s + self.experiment.seconds

    def __str__(self) -> str:
        """For people."""
        link = "" if self.rate_bps is None else f", {self.rate_bps / 1e6:g} Mbit/s"
        lost = f", {self.loss:.2%} lost" if self.loss else ""
        to = f" to {self.fanout}" if self.experiment.task == "throughput" else ""
        within = "" if self.symbol is None else f" in symbols of {self.symbol} B"
        return f"{self.experiment.name}: {self.system}, {self.size} B{within}{to}{link}{lost}"


def cells_of(plan: RunPlan) -> list[Cell]:
    """All cells, in the order in which they are to be run.

    Those of a network come together. Systems take turns, and every turn begins with another one.
    """
    return [cell for experiment in plan.experiments for cell in _cells(experiment)]


def _cells(experiment: Experiment) -> Iterator[Cell]:
    is_fec = experiment.task == "fec"
    layers = experiment.layers if experiment.network == "wan" and not is_fec else (None,)
    symbols = experiment.symbols if is_fec else (None,)
    places = itertools.product(experiment.rate, experiment.loss, experiment.fanout, layers, symbols)
    for rate_bps, loss, fanout, layer, symbol in places:
        for size, turn in itertools.product(experiment.sizes, range(experiment.repeat)):
            first = turn % len(experiment.systems)
            for system in experiment.systems[first:] + experiment.systems[:first]:
                yield Cell(
                    experiment=experiment,
                    system=system,
                    layer="fec" if is_fec else layer or layer_of(system),
                    size=size,
                    fanout=fanout,
                    loss=loss,
                    rate_bps=rate_bps,
                    symbol=symbol,
                    turn=turn,
                )


def ends_of(cell: Cell) -> str:
    """The system at both ends: on a WAN one of ours, whatever lies between."""
    if cell.experiment.network != "wan":
        return cell.system
    return next(system for system, layer in LAYER_OF.items() if layer == cell.layer)
