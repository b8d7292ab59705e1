"""All scenarios of harm.

A scenario draws everything that may vary from one seeded random source: moments, sizes, rates, victims. It runs real
processes in network namespaces behind a switch, and ends with the logs of all of them. Bounds on held sends are
generous: the machine that tests them is busy.
"""

from harm_by_attackers import ATTACKERS
from harm_by_consumers import CONSUMERS
from harm_to_networks import NETWORKS
from harm_to_processes import PROCESSES

SCENARIOS = (*PROCESSES, *NETWORKS, *CONSUMERS, *ATTACKERS)
