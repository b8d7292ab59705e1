"""Why messages do not arrive: checks of this host, of the bus, and of the way to another host, each with a verdict.

`examine` looks at what can be seen from here; `Listener` and `probe` are the two ends of a test between hosts.
"""

from .examination import examine, probe
from .listener import Listener
from .scene import Scene, look
from .verdict import Finding, Verdict, exit_code

__all__ = ["Finding", "Listener", "Scene", "Verdict", "examine", "exit_code", "look", "probe"]
