"""What the bus reports, as the exception listener hears it."""

from fjm2.messages.errors import InvalidClientIDError, JMSError

from .errors import BusError, MessagesLostError, UnconfirmedError
from .reports import (
    BusReport,
    BytesLost,
    ClientIdDuplicated,
    InterfaceChanged,
    NodeIdCollision,
    NotConfirmed,
    SenderLost,
    StreamsMissed,
    SubscriberEvicted,
    TransactionDropped,
)


def error_of(report: BusReport) -> JMSError:
    match report:
        case BytesLost() | StreamsMissed() | SenderLost() | TransactionDropped():
            return MessagesLostError(str(report))
        case NotConfirmed(nodes=nodes):
            return UnconfirmedError(str(report), nodes)
        case ClientIdDuplicated():
            return InvalidClientIDError(str(report))
        case SubscriberEvicted():
            return BusError(str(report), "subscriber_evicted")
        case NodeIdCollision():
            return BusError(str(report), "node_id_collided")
        case InterfaceChanged(is_up=is_up):
            return BusError(str(report), "interface_up" if is_up else "interface_down")
        case _:
            return BusError(str(report))
