"""Destinations that keepers and their clients speak to each other by."""

from typing import Final

from fjm2.messages.destination import Queue, Topic

DECISIONS: Final = Topic("FJM2.DECISIONS")
"""Destination of all entries of a decision log, which all members and clients of a cell hear. Producer id and producer
epoch of a frame are the cell and the manager's epoch."""
REQUESTS: Final = Queue("FJM2.CELL")
"""Destination of the requests of clients, by which consumers make room in a store that is full."""
