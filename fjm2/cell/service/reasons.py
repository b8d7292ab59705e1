"""Reasons of decisions that a client is told."""

from enum import IntEnum
from typing import Final


class Reason(IntEnum):
    """Reasons for which a request is refused. The number is in the verdict."""

    GRANTED = 0
    MALFORMED = 1
    NO_SESSION = 2
    SESSION_TAKEN = 3
    CLIENT_ID_TAKEN = 4
    TOO_MANY_SESSIONS = 5
    TEXT_TOO_LONG = 6
    NO_CLIENT_ID = 7
    NO_NAME = 8
    INVALID_DESTINATION = 9
    CONSUMER_ACTIVE = 10
    OTHER_KIND = 11
    TOO_MANY_CONSUMERS = 12
    TOO_MANY_SUBSCRIPTIONS = 13
    NO_CONSUMER = 14
    NO_SUBSCRIPTION = 15
    UNKNOWN_MESSAGES = 16
    TOO_SCATTERED = 17
    TOO_MANY_RANGES = 18
    NOT_OFFERED = 19
    NOT_HELD = 20
    TOO_MANY_LEDGERS = 21


TEXTS: Final[dict[Reason, str]] = {
    Reason.GRANTED: "the request is granted",
    Reason.MALFORMED: "the request cannot be read: expected the format of this version",
    Reason.NO_SESSION: "the session is not open, or has been silent for too long: open another one",
    Reason.SESSION_TAKEN: "another client has a session of this number: draw another number",
    Reason.CLIENT_ID_TAKEN: "another client with this client id is connected: close it, or choose another client id",
    Reason.TOO_MANY_SESSIONS: "there are too many sessions: close some of them",
    Reason.TEXT_TOO_LONG: "the client id, the name or the selector is too long: shorten it",
    Reason.NO_CLIENT_ID: "a durable subscription that is not shared needs a client id: set one",
    Reason.NO_NAME: "a subscription needs a name: give one",
    Reason.INVALID_DESTINATION: "the subscription is to no topic: expected a topic that is not temporary",
    Reason.CONSUMER_ACTIVE: "the subscription has an active consumer: close it first",
    Reason.OTHER_KIND: "a subscription of this name is shared and the other one is not: choose another name",
    Reason.TOO_MANY_CONSUMERS: "the session has too many consumers: close some of them",
    Reason.TOO_MANY_SUBSCRIPTIONS: "there are too many subscriptions: unsubscribe some of them",
    Reason.NO_CONSUMER: "the session has no such consumer: create it again",
    Reason.NO_SUBSCRIPTION: "there is no subscription of this name: create it, or check its name",
    Reason.UNKNOWN_MESSAGES: "the cell has not got the messages: acknowledge them again",
    Reason.TOO_SCATTERED: "too many ranges of a ledger would be acknowledged: acknowledge what lies between first",
    Reason.TOO_MANY_RANGES: "the request names too many ranges: send several",
    Reason.NOT_OFFERED: "the cell does not offer this: use a durable subscription",
    Reason.NOT_HELD: "the consumer does not hold the messages any more: others get them",
    Reason.TOO_MANY_LEDGERS: "the keepers know too many ledgers: ask again later",
}
"""Texts for users: what happened, and what to do."""


class ReturnReason(IntEnum):
    """Reasons for which a session ends without being closed. The number is in the RETURN record."""

    LAPSED = 1
    """The session was silent for longer than its lease."""
