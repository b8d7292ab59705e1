"""FJM2's own APIs at the tasks of the benchmarks. The commands are the same for all APIs."""

from importlib import import_module

from .base import Layer

LAYERS = ("norm", "jms")
APIS = ("listener", "receive", "iterate", "batches")


def load(name: str) -> Layer:
    """Return the layer of this name, which is one of LAYERS."""
    layer: Layer = import_module(f"{__name__}.{name}").LAYER
    return layer
