"""Connection factories, where an application begins."""

import os
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, NoReturn, Unpack
from urllib.parse import quote, unquote

from fjm2.base.errors import ConfigError
from fjm2.base.functions import FixedAttributes
from fjm2.bus.inbox import ConsumerSettings, settings_with

from .connection import Connection, ConnectionCore, mode_of
from .context import JMSContext, SharedConnection
from .metadata import refuse
from .settings import ClientSettings, ConnectionOptions, SessionMode

ENVIRONMENT = "FJM2_URI"
DEFAULT_URI = "fjm2://"

_CLIENT = {one.name for one in fields(ClientSettings)} - {"consumer"}
_CONSUMER = {one.name for one in fields(ConsumerSettings)}


class ConnectionFactory(FixedAttributes):
    """Creates connections to the bus at `uri`. The default is FJM2_URI of the environment, or the default bus if that
    is unset or empty.

    Options are settings of the URI, which they override, and those of the client: `client_id`, `overflow`,
    `messages_max`, `bytes_max`, `block_s`, `redeliveries_max`, `confirm_timeout_s`, `close_timeout_s`, `codec`,
    `telemetry` and `outbox_bytes_max`.

    `keep` names the directory of a keeper inside this process: if its disk is lost, everything that it keeps is. The
    first open connection starts it, and the close of the last one stops it. Programs of one host that name the same
    directory share it. A cell that it founds has `replicas` keepers.

    `outbox` names a directory that keeps the connection's own PERSISTENT messages until keepers have stored them. Such
    a send completes when the message is on the disk of the directory, with keepers on the bus or without. One
    connection at a time uses a directory. Its files take `outbox_bytes_max` bytes at most.
    """

    __slots__ = ("_config", "_settings")

    def __init__(self, uri: str | None = None, **options: Unpack[ConnectionOptions]) -> None:
        """Check the settings, and raise ConfigError if one is wrong. Nothing is opened yet."""
        # Importing these loads the NORM engine. Programs that only handle messages need not wait for it.
        from fjm2.bus.bus import BUS_DEFAULTS
        from fjm2.bus.config import CLIENT_SETTINGS, URI_SETTINGS, BusConfig, check_is_group, unknown_setting

        of_bus: dict[str, Any] = {**options}
        if "overrides" in of_bus:
            refuse("overrides by an administrator")
        client = {name: of_bus.pop(name) for name in _CLIENT & of_bus.keys()}
        consumer = {name: of_bus.pop(name) for name in _CONSUMER & of_bus.keys()}
        for name in [name for name in of_bus if name not in URI_SETTINGS]:
            raise unknown_setting(f"{name}={of_bus[name]!r}", name, URI_SETTINGS | CLIENT_SETTINGS)
        text = (os.environ.get(ENVIRONMENT) or DEFAULT_URI) if uri is None else uri
        if not isinstance(text, str):
            raise ConfigError(f"uri={uri!r}: expected a text, as in 'fjm2://?interface=eth0'")
        try:
            self._config = BusConfig.from_uri(with_options(text, of_bus), BUS_DEFAULTS)
        except ConfigError as error:
            if uri is None and os.environ.get(ENVIRONMENT) and not of_bus:
                raise ConfigError(f"{error} (in {ENVIRONMENT} of the environment)") from None
            raise
        check_is_group(self._config)
        self._settings = ClientSettings(consumer=settings_with(ConsumerSettings(), **consumer), **client)

    @property
    def uri(self) -> str:
        """URI of the bus, with all of its options."""
        return self._config.to_uri()

    def __repr__(self) -> str:
        from fjm2.bus.bus import BUS_DEFAULTS

        return f"ConnectionFactory({self._config.to_uri(BUS_DEFAULTS)!r})"

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:  # noqa: ARG002
        """Create a connection, to be opened by `await` or `async with`. User and password are ignored."""
        return Connection(ConnectionCore(self._config, self._settings))

    def create_context(
        self,
        mode: int = SessionMode.AUTO_ACKNOWLEDGE,
        user: str | None = None,
        password: str | None = None,
    ) -> JMSContext:
        """Create a context, to be opened by `await` or `async with`. User and password are ignored."""
        return JMSContext(SharedConnection(self.create_connection(user, password)), mode_of(mode, transacted=False))

    def create_topic_connection(self, *_: object, **__: object) -> NoReturn:
        """Raise ResourceAllocationError, because this release does not offer this method."""
        refuse("domain-specific interfaces")

    create_queue_connection = create_topic_connection
    """Raise ResourceAllocationError, because this release does not offer this method."""

    def create_xa_connection(self, *_: object, **__: object) -> NoReturn:
        """Raise NotImplementedError, because FJM2 does not offer XA transactions."""
        refuse("XA transactions")

    create_xa_context = create_xa_connection
    """Raise NotImplementedError, because FJM2 does not offer XA transactions."""


def with_options(uri: str, options: Mapping[str, object]) -> str:
    """Return a URI with options added, which override the URI's settings."""
    if not options:
        return uri
    place, _, query = uri.partition("?")
    names = {_long(name) for name in options}
    kept = [part for part in query.split("&") if part and _long(unquote(part.partition("=")[0])) not in names]
    asked = [f"{name}={quote(_text(name, value), safe='')}" for name, value in options.items()]
    return f"{place}?{'&'.join([*asked, *kept])}"


def _long(name: str) -> str:
    """Return the full name of a setting. In URIs, the rate has a short name, too."""
    return "rate_bps" if name == "rate" else name


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, str | int | float):
        return str(value)
    if value is None:
        return "none"
    raise ConfigError(f"{name}={value!r}: expected a string or a number")
