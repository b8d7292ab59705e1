"""Bus URIs and the settings that they stand for."""

from fjm2.bus.config import (
    DEFAULT_GROUP,
    DEFAULT_PORT,
    BusConfig,
)

__all__ = [
    "DEFAULT_GROUP",
    "DEFAULT_PORT",
    "BusConfig",
]
