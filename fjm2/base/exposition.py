"""The Prometheus text format. It consists of families of samples, each with a name, a kind and a help text."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""HTTP content type of the Prometheus text format."""

Kind = Literal["counter", "gauge"]
Labels = Mapping[str, object]

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    """One metric, with all its samples."""

    name: str
    kind: Kind
    help: str
    samples: Iterable[tuple[Labels, float]]


def text(families: Iterable[Family]) -> str:
    """Return all families in the Prometheus text format. Families without samples are left out."""
    lines: list[str] = []
    for name, kind, help_text, samples in families:
        shown = [f"{name}{_labels(labels)} {_value(value)}" for labels, value in samples]
        if shown:
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", *shown]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(str(value))}"' for name, value in labels.items()]) + "}"


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES)


def _value(value: float) -> str:
    """Return a number as text, with all its digits. A large counter cut to six digits would show no rate."""
    if type(value) is int:
        return str(value)
    return str(int(value)) if float(value).is_integer() else repr(float(value))
