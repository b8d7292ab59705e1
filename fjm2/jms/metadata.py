"""What this provider says of itself."""

from fjm2 import __version__

from .limits import NEEDS, NEVER
from .properties import DELIVERY_COUNT, GROUP_ID, GROUP_SEQUENCE


class ConnectionMetaData:
    """Versions, and what is there and what is not."""

    __slots__ = ()

    jms_major_version = 3
    jms_minor_version = 1
    jms_provider_name = "FJM2"
    provider_version = __version__

    @property
    def jms_version(self) -> str:
        return f"{self.jms_major_version}.{self.jms_minor_version}"

    @property
    def provider_major_version(self) -> int:
        return int(self.provider_version.split(".")[0])

    @property
    def provider_minor_version(self) -> int:
        return int(self.provider_version.split(".")[1])

    @property
    def jmsx_property_names(self) -> tuple[str, ...]:
        return GROUP_ID, GROUP_SEQUENCE, DELIVERY_COUNT

    @property
    def not_offered(self) -> dict[str, str]:
        """What calls refuse, and why."""
        return NEEDS | NEVER
