"""Delivery modes, and the defaults of a send."""

from enum import IntEnum
from typing import Final


class DeliveryMode(IntEnum):
    """How hard FJM2 tries."""

    NON_PERSISTENT = 1
    """Repaired like all others; nobody confirms it."""
    PERSISTENT = 2
    """Confirmed by all subscribers that are known, in the background."""


DEFAULT_DELIVERY_MODE: Final = DeliveryMode.PERSISTENT
"""Subscribers confirm messages."""
DEFAULT_PRIORITY: Final = 4
"""Of 0 to 9; 0 to 4 share the lane of ordinary messages."""
DEFAULT_TIME_TO_LIVE: Final = 0
"""Messages do not expire."""
DEFAULT_DELIVERY_DELAY: Final = 0
"""Messages are delivered at once."""
