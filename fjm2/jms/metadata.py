"""Versions, and the facilities that this release refuses. One table serves the exceptions and the meta data."""

from typing import Final, NoReturn

from fjm2.base.version import __version__
from fjm2.messages.errors import ResourceAllocationError
from fjm2.messages.properties import DELIVERY_COUNT, GROUP_ID, GROUP_SEQUENCE

NEEDS: Final[dict[str, str]] = {
    "queues": "need a coordinator; temporary queues do not",
    "queue browsers": "need a coordinator",
    "shared subscriptions": "need a coordinator",
    "durable subscriptions": "need a store",
    "shared durable subscriptions": "need a store and a coordinator",
    "delayed delivery": "needs a store",
    "overrides by an administrator": "need a coordinator",
    "domain-specific interfaces": "need queues, and those a coordinator",
}
"""Facilities that a later release may offer, and what they need."""

NEVER: Final[dict[str, str]] = {
    "connection consumers": "are a facility of application servers",
    "XA transactions": "are optional in JMS",
}


def refuse(what: str) -> NoReturn:
    """Raise ResourceAllocationError or, for a facility that will never be offered, NotImplementedError."""
    if what in NEVER:
        raise NotImplementedError(f"{what} {NEVER[what]}, and are not offered")
    raise ResourceAllocationError(f"{what} {NEEDS[what]}: not in this release")


class ConnectionMetaData:
    """Versions, and what this release offers."""

    __slots__ = ()

    jms_major_version = 3
    """Version of Jakarta Messaging."""
    jms_minor_version = 1
    """Version of Jakarta Messaging."""
    jms_provider_name = "FJM2"
    """Name of the provider."""
    provider_version = __version__
    """Version of FJM2."""

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
        """Facilities that are refused, and why."""
        return NEEDS | NEVER
