"""What this provider says of itself."""

from fjm2.base.version import __version__
from fjm2.messages.properties import DELIVERY_COUNT, GROUP_ID, GROUP_SEQUENCE

from .unsupported import NEEDS, NEVER


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
