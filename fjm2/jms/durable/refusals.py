"""Errors of durable subscriptions: what the cell refuses, and cells that are not there."""

from typing import Final

from fjm2.base.quantities import counted
from fjm2.bus.config import BusConfig
from fjm2.bus.errors import MessagesLostError
from fjm2.cell.service.reasons import TEXTS, Reason
from fjm2.messages.destination import Topic
from fjm2.messages.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    JMSError,
    ResourceAllocationError,
)

from ..sends.keepers_known import place_of

_KINDS: Final[dict[Reason, type[JMSError]]] = {
    Reason.NO_SESSION: IllegalStateError,
    Reason.CLIENT_ID_TAKEN: InvalidClientIDError,
    Reason.NO_CLIENT_ID: IllegalStateError,
    Reason.INVALID_DESTINATION: InvalidDestinationError,
    Reason.CONSUMER_ACTIVE: IllegalStateError,
    Reason.OTHER_KIND: IllegalStateError,
    Reason.NO_CONSUMER: IllegalStateError,
    Reason.NOT_HELD: IllegalStateError,
    Reason.NO_SUBSCRIPTION: InvalidDestinationError,
}
"""Exceptions by reason; for all others, ResourceAllocationError."""
FENCED: Final = "session_fenced"
"""Error code of calls about messages that the session has lost."""


def refusal(subject: str, reason: Reason) -> JMSError:
    """Return the error of something that the cell refused."""
    return _KINDS.get(reason, ResourceAllocationError)(f"{subject}: {TEXTS[reason]}")


def silent_cell(subject: str, config: BusConfig, waited_s: float) -> JMSError:
    """Return the error of a call that the cell did not decide in time."""
    return ResourceAllocationError(
        f"{subject}: the keepers on {place_of(config)} decided nothing for {waited_s:g} s; look at them with "
        "`fjm2 keep status`, then call again",
        "no_keeper",
    )


def ended(subject: str, topic: Topic) -> JMSError:
    """Return the error of a subscription that may have ended while its consumer was silent."""
    return MessagesLostError(
        f"{subject}: the keepers heard nothing of this session for too long. The subscription ends with its last "
        "consumer: if there was no other, messages that were sent meanwhile are lost. Use a durable one to keep them",
        topics=(topic,),
    )


def file_lost(subject: str, topic: Topic, name: str, size: int) -> JMSError:
    """Return the error of a file that was sent before its sender knew of the subscription."""
    return MessagesLostError(
        f"{subject}: the file {name!r} of {counted(size, 'byte')} was sent, and does not come: keepers do not keep "
        "files. Have it sent again with delivery mode NON_PERSISTENT, to a consumer that is not durable, or as a "
        "BytesMessage",
        topics=(topic,),
        messages=1,
    )


def fenced_commit() -> JMSError:
    """Return the error of a transaction whose messages were sent, and whose acknowledgement comes too late."""
    return IllegalStateError(
        "commit: the messages of the transaction were sent, and it acknowledges nothing: the keepers heard nothing of "
        "this session for too long, and gave back what it has got; that comes again, flagged as redelivered",
        FENCED,
    )


def fenced(subject: str) -> JMSError:
    """Return the error of an acknowledgement that comes too late."""
    return IllegalStateError(
        f"{subject}: the keepers heard nothing of this session for too long, and gave its messages back; they come "
        "again, flagged as redelivered",
        FENCED,
    )
