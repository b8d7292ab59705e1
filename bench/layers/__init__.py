"""FJM2's own APIs at the tasks of the benchmarks. The commands are the same for all of them."""

from importlib import import_module

from .base import Layer

LAYERS = ("norm", "jms")
APIS = ("listener", "receive", "iterate")


def load(name: str) -> Layer:
    """Return one of LAYERS."""
    layer: Layer = import_module(f"{__name__}.{name}").LAYER
    return layer
