"""What this provider says of itself."""

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
"""What may come with a later release."""

NEVER: Final[dict[str, str]] = {
    "connection consumers": "are a facility of application servers",
    "XA transactions": "are optional in JMS",
}


def refuse(what: str) -> NoReturn:
    """ResourceAllocationError or, for what will never be there, NotImplementedError."""
    if what in NEVER:
        raise NotImplementedError(f"{what} {NEVER[what]}, and not offered")
    raise ResourceAllocationError(f"{what} {NEEDS[what]}: not in this release")


class ConnectionMetaData:
    """Versions, and what is there and what is not."""

    __slots__ = ()

    jms_major_version = 3
    """Of Jakarta Messaging."""
    jms_minor_version = 1
    """Of Jakarta Messaging."""
    jms_provider_name = "FJM2"
    """Who provides it."""
    provider_version = __version__
    """FJM2's version."""

    @property
    def jms_version(self) -> str:
        """Of Jakarta Messaging, as text."""
        return f"{self.jms_major_version}.{self.jms_minor_version}"

    @property
    def provider_major_version(self) -> int:
        """The first number of FJM2's version."""
        return int(self.provider_version.split(".")[0])

    @property
    def provider_minor_version(self) -> int:
        """The second number of FJM2's version."""
        return int(self.provider_version.split(".")[1])

    @property
    def jmsx_property_names(self) -> tuple[str, ...]:
        """The properties named JMSX that FJM2 knows."""
        return GROUP_ID, GROUP_SEQUENCE, DELIVERY_COUNT

    @property
    def not_offered(self) -> dict[str, str]:
        """What calls refuse, and why."""
        return NEEDS | NEVER
