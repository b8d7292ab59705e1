"""Labels of traces. Every line of a trace has them, and they tell where the line comes from."""

import json
import logging
import math
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Self

from fjm2.base.errors import ConfigError
from fjm2.base.logs import Log

LABELS_VARIABLE: Final = "FJM2_TRACE_LABELS"
NAME_MAX: Final = 128
_NAME = re.compile(r"[A-Za-z0-9._:+-]{1,128}")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]+")
_STARTED = time.strftime("%Y%m%dT%H%M%S", time.gmtime())

log = Log("fjm2.record")


def _default_node() -> str:
    host = _FOREIGN.sub("-", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}"


def _default_run() -> str:
    return f"{_STARTED}-{_default_node()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Keys that all lines of a trace have. None means unknown; for `system`, `layer` and `role`, it means the source's
    own value."""

    run: str = field(default_factory=_default_run)
    """Name of the experiment or run of a program: up to 128 letters, digits and `._:+-`."""
    node: str = field(default_factory=_default_node)
    """Name of the process in the run: up to 128 letters, digits and `._:+-`."""
    system: str | None = None
    """Name of the measured system, such as "fjm2-jms"."""
    layer: str | None = None
    """Layer that is measured: `jms` or `norm` in most cases."""
    role: str | None = None
    """Role of the process, such as "pub"."""
    scenario: str | None = None
    """Name of the experiment in results."""
    size: int | None = None
    """Bytes of a message, if all have the same size."""
    fanout: int | None = None
    """Number of subscribers."""
    loss: float | None = None
    """Configured share of datagrams that the link loses, from 0 to 1."""
    rate_bps: float | None = None
    """Configured rate of the link, in bits per second."""

    def __post_init__(self) -> None:
        for item in fields(self):
            problem = _problem(item.name, getattr(self, item.name))
            if problem:
                raise ConfigError(problem)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Return the labels in FJM2_TRACE_LABELS, a JSON object. Labels that are not valid are left out, with a
        warning."""
        text = environ.get(LABELS_VARIABLE, "")
        if not text.strip():
            return cls()
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as error:
            _refuse(f"{LABELS_VARIABLE} is left out: expected a JSON object, and it is not JSON ({error})")
            return cls()
        if not isinstance(given, dict):
            _refuse(f"{LABELS_VARIABLE} is left out: expected a JSON object")
            return cls()
        good = {}
        for name, value in given.items():
            problem = _problem(name, value)
            if problem:
                _refuse(f"{LABELS_VARIABLE}: a label is left out: {problem}")
            else:
                good[name] = value
        return cls(**good)

    def of_process(self, suffix: str) -> Self:
        """Return the labels with a suffix added to `node`, for another process that would have the same name."""
        suffix = f"-{suffix}"
        return replace(self, node=self.node[: NAME_MAX - len(suffix)] + suffix)

    def as_dict(self) -> dict[str, Any]:
        """Return the labels by name, in the order of the schema."""
        return {name: getattr(self, name) for name in NAMES}


NAMES: Final = tuple(item.name for item in fields(Labels))
_TEXTS: Final = frozenset({"system", "layer", "role", "scenario"})
_COUNTS: Final = frozenset({"size", "fanout"})


def _refuse(text: str) -> None:
    log.tell(logging.WARNING, "label_refused", text, about=text)


def _problem(name: str, value: Any) -> str:
    """Return a sentence about the fault of a label, or an empty text if the label is valid."""
    if name not in NAMES:
        return f"{name}: expected one of {', '.join(NAMES)}"
    if name in ("run", "node"):
        is_good = isinstance(value, str) and _NAME.fullmatch(value) is not None
        return "" if is_good else f"{name}={value!r}: expected 1 to 128 letters, digits or ._:+-"
    if value is None:
        return ""
    if name in _TEXTS:
        is_good = isinstance(value, str) and 0 < len(value) <= NAME_MAX and value.isprintable()
        return "" if is_good else f"{name}={value!r}: expected a text of 1 to {NAME_MAX} characters"
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if name in _COUNTS:
        return "" if is_number and isinstance(value, int) and value >= 0 else f"{name}={value!r}: expected 0 or more"
    if name == "loss":
        return "" if is_number and 0 <= value <= 1 else f"loss={value!r}: expected 0 to 1"
    return "" if is_number and value > 0 else f"{name}={value!r}: expected a number above 0"
