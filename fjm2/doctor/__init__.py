"""Finds out why messages do not arrive: checks this host, the bus, and the path to another host, each with a verdict.

`examine` checks what can be seen from this host. `Listener` and `probe` are the two ends of a test between hosts.
"""

from .examination import examine, probe
from .listener import Listener
from .scene import Scene, look
from .verdict import Finding, Verdict, exit_code

__all__ = ["Finding", "Listener", "Scene", "Verdict", "examine", "exit_code", "look", "probe"]
