"""Plans of experiments: TOML files, checked key by key before anything runs."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fjm2.errors import ConfigError
from fjm2.uri import BusConfig

from ..comparison.trial import SYSTEMS
from ..workload.messages import MESSAGE_BYTES_MIN, PROPERTIES_MAX
from .values import Boolean, Choice, Integer, List, Name, Number, PlanError, Rate, Text, check_keys

TASKS = ("throughput", "round-trips", "fec")
NETWORKS = ("loopback", "lan", "wan")
WAYS = ("fjm2d", "plain-relay", "direct")
"""Ways that messages can take from LAN to LAN."""
CODERS = ("fjm2", "zfec", "creedsolo")
LAYERS = ("jms", "norm")
SIZE_MAX = 1 << 28
"""Longest message in bytes: messages are made in memory."""
# The limits below are far beyond useful values. They catch mistakes, such as percent in the place of a fraction.
FANOUT_MAX = 64
LOSS_MAX = 0.5
SECONDS_MAX = 3600.0
REPEAT_MAX = 99
ROUND_TRIPS_MAX = 1_000_000
BLOCK_MAX = 255
"""Maximum number of symbols of a block, parity included: the limit of Reed-Solomon over GF(2^8)."""
_SEGMENT_BYTES, _SMALL_SEGMENT_BYTES = 8000, 1428
"""Segment sizes of libnorm, without and with loss. A small segment fits into a packet: see `commands.compare`."""
_SETTINGS = {
    "loopback": "rate=none&flow=min&ttl=0",
    "lan": "rate=none&flow=min&loopback=off",
    "wan": "rate=none&flow=min&loopback=off",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One table `[[experiment]]`: every combination of the values in its lists is measured."""

    name: str
    task: str = "throughput"
    network: str = "lan"
    scenario: str = ""
    """Name of the results' scenario. Default: the network."""
    systems: tuple[str, ...] = ()
    """Systems to measure. For the network `wan` they are ways, for the task `fec` coders."""
    layers: tuple[str, ...] = ("jms",)
    """FJM2's API at the ends of a `wan`. On other networks, the system's name tells the API."""
    sizes: tuple[int, ...] = (1024,)
    fanout: tuple[int, ...] = (1,)
    loss: tuple[float, ...] = (0.0,)
    rate: tuple[float | None, ...] = (None,)
    """Rates of the link in bits per second. None means no limit."""
    symbols: tuple[int, ...] = (1440,)
    """Symbol sizes in bytes, for the task `fec`."""
    round_trips: int = 2000
    properties: int = 0
    seconds: float = 2.0
    repeat: int = 3
    object: str = "stream"
    settings: str = ""
    """Query of FJM2's bus URI."""
    segment_bytes: int = 0
    """Segment size of libnorm. 0 means the best size for the network."""
    offload: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The contents of a plan file."""

    name: str
    title: str
    experiments: tuple[Experiment, ...]


def load(path: Path) -> RunPlan:
    """Read and check a plan. Raise PlanError if it has a mistake."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path}: not a TOML file: {error}") from error
    return _plan(path, content)


def _plan(path: Path, content: dict[str, Any]) -> RunPlan:
    where = str(path)
    check_keys(where, content, ("title", "experiment", *_DEFAULTS))
    title = Text()(content.get("title", path.stem), f"{where}: title")
    tables = content.get("experiment")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise PlanError(f"{where}: experiment: expected at least one table [[experiment]]")
    defaults = {key: content[key] for key in _DEFAULTS if key in content}
    experiments = [_experiment(where, number, defaults, table) for number, table in enumerate(tables, 1)]
    names = [experiment.name for experiment in experiments]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"{where}: experiment {name}: name: there are two of this name; each needs its own")
    return RunPlan(name=path.stem, title=title, experiments=tuple(experiments))


def _experiment(file: str, number: int, defaults: Mapping[str, Any], table: Mapping[str, Any]) -> Experiment:
    where = f"{file}: experiment {table.get('name', number)}"
    if "name" not in table:
        raise PlanError(f"{where}: name: is missing; expected letters, digits, + and -, at most 32")
    check_keys(where, table, tuple(_READERS))
    given = {**defaults, **table}
    experiment = Experiment(**{key: _READERS[key](value, f"{where}: {key}") for key, value in given.items()})
    return _completed(where, experiment, set(table))


def _completed(where: str, experiment: Experiment, given: set[str]) -> Experiment:
    """Check the values that depend on each other, and fill in defaults."""
    known = _systems_of(experiment)
    systems = experiment.systems or known
    for system in systems:
        if system not in known:
            raise PlanError(
                f"{where}: systems: {system!r} is unknown; for task {experiment.task} "
                f"and network {experiment.network} expected some of {', '.join(known)}"
            )
    for key, (is_allowed, reason) in _ALLOWED.items():
        if key in given and not is_allowed(experiment):
            raise PlanError(f"{where}: {key}: {reason}")
    if experiment.task == "fec":
        _check_blocks(where, experiment)
    settings = experiment.settings or _SETTINGS[experiment.network]
    try:
        BusConfig.from_uri(f"fjm2://?{settings}")
    except ConfigError as error:
        raise PlanError(f"{where}: settings: {error}") from error
    is_fec = experiment.task == "fec"
    return _replaced(
        experiment,
        systems=systems,
        settings=settings,
        scenario=experiment.scenario or ("" if is_fec else experiment.network),
        segment_bytes=experiment.segment_bytes or (_SMALL_SEGMENT_BYTES if any(experiment.loss) else _SEGMENT_BYTES),
    )


def _replaced(experiment: Experiment, **changes: Any) -> Experiment:
    values = {field.name: getattr(experiment, field.name) for field in fields(experiment)}
    return Experiment(**{**values, **changes})


def _systems_of(experiment: Experiment) -> tuple[str, ...]:
    if experiment.task == "fec":
        return CODERS
    if experiment.network == "wan":
        return WAYS
    return SYSTEMS


def parity_of(sources: int) -> int:
    """Return the number of parity symbols of a block for the task `fec`: one for every four source symbols."""
    return -(-sources // 4)


def _check_blocks(where: str, experiment: Experiment) -> None:
    sources = -(-max(experiment.sizes) // min(experiment.symbols))
    if sources + parity_of(sources) > BLOCK_MAX:
        raise PlanError(
            f"{where}: sizes: {max(experiment.sizes)} B in symbols of {min(experiment.symbols)} B with parity: "
            f"expected at most {BLOCK_MAX} symbols"
        )


def _is_throughput(experiment: Experiment) -> bool:
    return experiment.task == "throughput"


_NO_FEC = "is not for task fec"
_ALLOWED: dict[str, tuple[Callable[[Experiment], bool], str]] = {
    "symbols": (lambda it: it.task == "fec", "is for task fec only"),
    "round_trips": (lambda it: it.task == "round-trips", "is for task round-trips only"),
    "network": (lambda it: it.task != "fec", _NO_FEC),
    "seconds": (_is_throughput, "is for task throughput only"),
    "fanout": (
        lambda it: (_is_throughput(it) and it.network != "wan") or it.fanout == (1,),
        "round trips are to one echo, a network wan has one subscriber, and a code has none: expected [1]",
    ),
    "layers": (lambda it: it.network == "wan", "is for network wan only; elsewhere a system's name tells its layer"),
    "loss": (
        lambda it: it.network != "loopback" or not any(it.loss),
        "nothing is lost on a loopback: expected [0.0], or network lan or wan",
    ),
    "rate": (
        lambda it: it.network != "loopback" or it.rate == (None,),
        "a loopback has no rate: expected ['none'], or network lan or wan",
    ),
    "properties": (lambda it: it.task == "throughput", "is for task throughput only"),
}
"""Keys that not every experiment may have, with the condition for each, and the error if the condition is not met."""

_READERS: dict[str, Callable[[object, str], Any]] = {
    "name": Name(),
    "task": Choice(*TASKS),
    "network": Choice(*NETWORKS),
    "scenario": Name(),
    "systems": List(Text()),
    "layers": List(Choice(*LAYERS)),
    "sizes": List(Integer(MESSAGE_BYTES_MIN, SIZE_MAX)),
    "fanout": List(Integer(1, FANOUT_MAX)),
    "loss": List(Number(0.0, LOSS_MAX)),
    "rate": List(Rate()),
    "symbols": List(Integer(512, 8192)),
    "round_trips": Integer(1, ROUND_TRIPS_MAX),
    "properties": Integer(0, PROPERTIES_MAX),
    "seconds": Number(0.1, SECONDS_MAX),
    "repeat": Integer(1, REPEAT_MAX),
    "object": Choice("stream", "data"),
    "settings": Text(),
    "segment_bytes": Integer(64, 65_000),
    "offload": Boolean(),
    "verify": Boolean(),
}
_DEFAULTS = ("seconds", "repeat", "offload", "verify")
"""Keys that may be given for all experiments at the top of the file."""
