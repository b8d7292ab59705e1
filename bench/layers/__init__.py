"""Our own APIs at the tasks of the benchmarks: the commands are the same for all of them."""

from importlib import import_module

from .base import Layer

LAYERS = ("norm", "jms")
APIS = ("listener", "receive", "iterate")


def load(name: str) -> Layer:
    """One of LAYERS."""
    layer: Layer = import_module(f"{__name__}.{name}").LAYER
    return layer
