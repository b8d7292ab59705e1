"""What the bus reports, as the exception listener hears it."""

from .bus_report import (
    BusReport,
    BytesLost,
    ClientIdDuplicated,
    NotConfirmed,
    SenderLost,
    StreamsMissed,
    TransactionDropped,
)
from .errors import InvalidClientIDError, JMSError
from .reports import BusError, MessagesLostError, UnconfirmedError


def error_of(report: BusReport) -> JMSError:
    match report:
        case BytesLost() | StreamsMissed() | SenderLost() | TransactionDropped():
            return MessagesLostError(str(report))
        case NotConfirmed(nodes=nodes):
            return UnconfirmedError(str(report), nodes)
        case ClientIdDuplicated():
            return InvalidClientIDError(str(report))
        case _:
            return BusError(str(report))
