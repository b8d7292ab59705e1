"""Versions, and the facilities that this release refuses. The same tables serve the exceptions and the meta data."""

from typing import Final, NoReturn

from fjm2.base.version import __version__
from fjm2.messages.destination import Destination, TemporaryQueue, Topic, called
from fjm2.messages.errors import ResourceAllocationError
from fjm2.messages.properties import DELIVERY_COUNT, GROUP_ID, GROUP_SEQUENCE

NEEDS: Final[dict[str, str]] = {
    "queues": "need a coordinator",
    "queue browsers": "need a coordinator",
    "overrides by an administrator": "need a coordinator",
    "domain-specific interfaces": "need queues, and those a coordinator",
    "transactions beside an outbox": "need a store that commits them as one",
}
"""Facilities that a later release may offer, with what each of them needs."""

NEVER: Final[dict[str, str]] = {
    "connection consumers": "are a facility of application servers",
    "XA transactions": "are optional in JMS",
}


_INSTEAD: Final[dict[str, str]] = {
    "queues": "use {topic}, whose messages go to every subscriber, or create_temporary_queue() for replies",
    "queue browsers": "use a consumer of {topic}, or `fjm2 tail`, which shows messages as they pass",
    "overrides by an administrator": "pass the options to ConnectionFactory",
    "domain-specific interfaces": "use create_connection or create_context, which have topics and temporary queues",
    "transactions beside an outbox": "use another mode, or a connection without outbox=",
    "connection consumers": "use a session with a message listener",
    "XA transactions": "use a transacted session",
}
"""Remedies: calls to use in place of each facility."""

_INSTEAD_OF_BROWSING_TEMPORARY: Final = (
    "receive from it in a transacted session, and roll back: the messages stay in the queue"
)


def refuse(what: str, destination: Destination | None = None) -> NoReturn:
    """Refuse a facility: raise NotImplementedError if it will never be offered, otherwise ResourceAllocationError.

    The message names the destination that it was wanted for, and the calls to use instead.
    """
    subject = "" if destination is None else f"{destination}: "
    topic = "a topic" if destination is None else called(Topic, destination.name)
    instead = _INSTEAD[what].format(topic=topic)
    if what == "queue browsers" and isinstance(destination, TemporaryQueue):
        instead = _INSTEAD_OF_BROWSING_TEMPORARY  # there is no topic, and `fjm2 tail` does not show it
    if what in NEVER:
        raise NotImplementedError(f"{subject}{what} {NEVER[what]}, and are not offered: {instead}")
    raise ResourceAllocationError(f"{subject}{what} {NEEDS[what]}, which this release does not have: {instead}")


class ConnectionMetaData:
    """Versions of Jakarta Messaging and of FJM2, and the facilities that this release does not offer."""

    __slots__ = ()

    jms_major_version = 3
    """First number of the version of Jakarta Messaging."""
    jms_minor_version = 1
    """Second number of the version of Jakarta Messaging."""
    jms_provider_name = "FJM2"
    """Name of the JMS provider."""
    provider_version = __version__
    """Version of FJM2."""

    def __repr__(self) -> str:
        return f"<{self.jms_provider_name} {self.provider_version}, Jakarta Messaging {self.jms_version}>"

    @property
    def jms_version(self) -> str:
        """Version of Jakarta Messaging, as text."""
        return f"{self.jms_major_version}.{self.jms_minor_version}"

    @property
    def provider_major_version(self) -> int:
        """First number of FJM2's version."""
        return int(self.provider_version.split(".")[0])

    @property
    def provider_minor_version(self) -> int:
        """Second number of FJM2's version."""
        return int(self.provider_version.split(".")[1])

    @property
    def jmsx_property_names(self) -> tuple[str, ...]:
        """Names of the JMSX properties that FJM2 supports."""
        return GROUP_ID, GROUP_SEQUENCE, DELIVERY_COUNT

    @property
    def not_offered(self) -> dict[str, str]:
        """Facilities that are refused, with the reason for each."""
        return NEEDS | NEVER
