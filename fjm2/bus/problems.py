"""Logging of problems that no call can raise, for connections without an exception listener."""

import logging
from collections.abc import Hashable
from typing import Final

from fjm2.base.logs import Log
from fjm2.messages.errors import InvalidClientIDError, JMSError

from .errors import (
    BusError,
    ConsumerFullError,
    ListenerError,
    MessagesDroppedError,
    MessagesExpiredError,
    MessagesLostError,
    UnconfirmedError,
)

log = Log("fjm2.jms")

ADVICE: Final = {
    "messages_lost": "run `fjm2 doctor` to find where data get lost; with more repair_bytes, senders repair for longer",
    "messages_dropped": "take messages faster, raise messages_max or bytes_max, or let senders wait: overflow='block'",
    "messages_expired": "take messages faster, or have them sent with a longer time_to_live; compare the clocks",
    "consumer_full": "take messages faster, or let the consumer drop some: overflow='drop_oldest'",
    "unconfirmed": "they may or may not have the messages: `fjm2 top` shows if they are still there",
    "listener_failed": "catch the exception in the listener: the message is not delivered again",
    "client_id_in_use": "give every connection a client_id of its own",
    "sender_impersonated": "find out who sends from that address; the sender goes on, and nothing is lost",
    "lost_after_confirmation": "send it again what matters; the log of that program tells why it loses messages",
    "subscriber_evicted": "it has left or hangs: check that host; it may come back by itself",
    "subscriber_full": "let its application take messages faster, or drop some: overflow, or block_s there",
    "subscriber_ready": "nothing to do: this sender does not wait for it any more",
    "node_id_collided": "if this repeats, some device sends back what it receives: look for a loop in the network",
    "interface_down": "nothing is sent or received until it is back: check cable and address",
    "interface_up": "nothing to do: messages flow again, and missed ones are repaired where possible",
    "sends_refused": "a firewall rule of this host, most likely: run `fjm2 doctor` as root, which names it",
    "problem": "set an exception_listener to handle it",
}
"""Advice on each problem, by the name of its log event."""

_EVENTS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (MessagesLostError, "messages_lost"),
    (MessagesDroppedError, "messages_dropped"),
    (MessagesExpiredError, "messages_expired"),
    (ConsumerFullError, "consumer_full"),
    (UnconfirmedError, "unconfirmed"),
    (ListenerError, "listener_failed"),
    (InvalidClientIDError, "client_id_in_use"),
)


def event_of(error: Exception) -> str:
    """Return the log event of a problem, a key of ADVICE."""
    if isinstance(error, BusError) and error.error_code in ADVICE:
        return error.error_code
    return next((event for kind, event in _EVENTS if isinstance(error, kind)), "problem")


def log_problem(error: Exception, about: Hashable = None) -> None:
    """Log a problem, once in ten seconds for each value of `about`, destination, session and type of error. If an error
    of the application caused it, add the traceback of that error."""
    event = event_of(error)
    cause = error.linked_exception if isinstance(error, JMSError) else error
    place = about, getattr(error, "destination", None), getattr(error, "session", None), type(cause)
    log.tell(
        logging.WARNING, event, f"{error}; {ADVICE[event]}", about=place, error=cause, error_kind=type(error).__name__
    )
