"""Delivery modes, and the defaults of a send."""

from enum import IntEnum
from typing import Final


class DeliveryMode(IntEnum):
    """Reliability of a message's delivery."""

    NON_PERSISTENT = 1
    """Messages are repaired, as always, but not confirmed by subscribers."""
    PERSISTENT = 2
    """Messages are repaired, and confirmed by all known subscribers in the background."""


DEFAULT_DELIVERY_MODE: Final = DeliveryMode.PERSISTENT
"""Default delivery mode, in which subscribers confirm messages."""
DEFAULT_PRIORITY: Final = 4
"""Default priority of 0 to 9. Priorities 0 to 4 share the lane of ordinary messages (Jakarta Messaging 3.1, 3.4.10)."""
DEFAULT_TIME_TO_LIVE: Final = 0
"""Default time to live, in milliseconds; 0 means that messages do not expire."""
DEFAULT_DELIVERY_DELAY: Final = 0
"""Default delivery delay, in milliseconds; 0 means that messages are delivered at once."""
