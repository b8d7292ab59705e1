"""The cells of a plan: every combination of systems and settings, each of which is one run."""

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..comparison.trial import LAYER_OF, layer_of
from ..networks.spec import NetworkSpec
from .plan import Experiment, RunPlan

_START_UP_S = {"fjm2d": 5.0, "plain-relay": 3.0, "activemq": 6.0, "activemq-stomp": 6.0, "jgroups": 5.0}
"""Estimated time for a run to begin and end, without the time for sending. It serves to estimate the time left."""
_START_UP_OTHERS_S = 2.0
_START_UP_A_SUBSCRIBER_S = 0.3
_ROUND_TRIP_S = 0.0003
_FEC_S = 0.2
"""Estimated times, as in `_START_UP_S`: a round trip of a slow system, and one measurement of a code."""


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
    def network(self) -> NetworkSpec | None:
        """The network for the run. None if the task needs no network."""
        if self.experiment.task == "fec":
            return None
        experiment = self.experiment
        return NetworkSpec(experiment.network, self.fanout, self.loss, self.rate_bps, experiment.offload)

    @property
    def name(self) -> str:
        """Unique name in the plan, made of characters that the id of a run may have."""
        parts = [self.experiment.name, self.system, self.layer, f"{self.size}B", f"x{self.fanout}"]
        parts += [f"loss{self.loss:g}"] if self.loss else []
        parts += [] if self.rate_bps is None else [f"{self.rate_bps / 1e6:g}mbit"]
        parts += [] if self.symbol is None else [f"symbols{self.symbol}"]
        return ".".join([*parts, str(self.turn)])

    @property
    def key(self) -> str:
        """The name with a checksum of all settings. A result of other settings is not a result of this cell."""
        experiment = self.experiment
        settings = (
            experiment.task,
            self.scenario,
            self.network,
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
        """Estimated duration of the run."""
        if self.experiment.task == "fec":
            return _FEC_S
        start_s = _START_UP_S.get(self.system, _START_UP_OTHERS_S) + _START_UP_A_SUBSCRIBER_S * self.fanout
        if self.experiment.task == "round-trips":
            return start_s + _ROUND_TRIP_S * self.experiment.round_trips
        return start_s + self.experiment.seconds

    def __str__(self) -> str:
        """Describe the cell for people."""
        link = "" if self.rate_bps is None else f", {self.rate_bps / 1e6:g} Mbit/s"
        lost = f", {self.loss:.2%} lost" if self.loss else ""
        to = f" to {self.fanout}" if self.experiment.task == "throughput" else ""
        within = "" if self.symbol is None else f" in symbols of {self.symbol} B"
        return f"{self.experiment.name}: {self.system}, {self.size} B{within}{to}{link}{lost}"


def cells_of(plan: RunPlan) -> list[Cell]:
    """Return all cells in the order to run them.

    Cells of the same network follow each other. Systems take turns, and each repeat begins with another system.
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


def end_system(cell: Cell) -> str:
    """Return the system of publisher and subscribers. On a WAN that is FJM2, whatever the gateways are."""
    if cell.experiment.network != "wan":
        return cell.system
    return next(system for system, layer in LAYER_OF.items() if layer == cell.layer)
