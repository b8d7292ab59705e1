"""FJM2: brokerless JMS messaging for Python over NORM reliable multicast (RFC 5740)."""

from fjm2.base import readings
from fjm2.base.event_loop import run
from fjm2.base.version import __version__
from fjm2.environment import observe

__all__ = ["__version__", "run"]

readings.on_registered = observe
