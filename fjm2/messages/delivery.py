"""Delivery modes, and the defaults of a send."""

from enum import IntEnum
from typing import Final


class DeliveryMode(IntEnum):
    """How reliably a message is delivered."""

    NON_PERSISTENT = 1
    """Repaired like all messages, but not confirmed by subscribers."""
    PERSISTENT = 2
    """Confirmed by all known subscribers, in the background."""


DEFAULT_DELIVERY_MODE: Final = DeliveryMode.PERSISTENT
"""Subscribers confirm messages."""
DEFAULT_PRIORITY: Final = 4
"""Priorities are 0 to 9. 0 to 4 share the lane of ordinary messages (Jakarta Messaging 3.1, 3.4.10)."""
DEFAULT_TIME_TO_LIVE: Final = 0
"""Milliseconds; 0 means that messages do not expire."""
DEFAULT_DELIVERY_DELAY: Final = 0
"""Milliseconds; 0 means that messages are delivered at once."""
