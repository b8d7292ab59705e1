"""The text form that Prometheus reads: families of samples, each with a name, a kind and a sentence about it."""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of what `render` gives."""

Kind = Literal["counter", "gauge"]
Labels = Mapping[str, object]

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: Kind
    told: str
    samples: Iterable[tuple[Labels, float]]


def text(families: Iterable[Family]) -> str:
    """Families without samples are left out."""
    lines: list[str] = []
    for name, kind, told, samples in families:
        shown = [f"{name}{_labels(labels)} {_value(value)}" for labels, value in samples]
        if shown:
            lines += [f"# HELP {name} {told}", f"# TYPE {name} {kind}", *shown]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(str(value))}"' for name, value in labels.items()]) + "}"


def _escaped(value: str) -> str:
    return value.translate(_ESCAPES)


def _value(value: float) -> str:
    """All digits: of a counter that is cut to six, no rate can be told."""
    if type(value) is int:
        return str(value)
    return str(int(value)) if float(value).is_integer() else repr(float(value))
