"""The service's TLS certificate. It is used only if its files match, and loaded again when they have changed."""

import asyncio
import os
import ssl

from fjm2.base.logs import Log

from ..config import AdminConfig
from ..errors import ConfigurationError

_WATCH_S = 2.0
"""Time between two checks whether the files have changed."""

log = Log("fjm2admin.tls")

Stamp = tuple[int, int, int]
"""Inode, time of modification and size: they change when a file is replaced or written."""


class Certificate:
    """The certificate chain and key of a configuration, in a TLS context for connections."""

    def __init__(self, config: AdminConfig) -> None:
        self._files = (config.certificate, config.certificate_key)
        self._stamps: list[Stamp | None] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def check(self) -> None:
        """Raise ConfigurationError if the files cannot be used."""
        self._load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def context(self) -> ssl.SSLContext:
        """Return the context for all connections. Raise ConfigurationError if the files cannot be used."""
        self._stamps = self._seen()
        self._load_into(self._context)
        return self._context

    async def watch(self) -> None:
        """Load the files whenever they change, until cancelled. New connections get the new certificate."""
        while True:
            await asyncio.sleep(_WATCH_S)
            if self._seen() != self._stamps:
                self.reload()

    def reload(self) -> None:
        """Load the files again. If they do not match, as while only one is replaced, keep the present certificate."""
        self._stamps = self._seen()
        try:
            self.check()
            self._load_into(self._context)
        except ConfigurationError as error:
            log.error("certificate_refused", problem=str(error))
        else:
            log.info("certificate_loaded", file=self._files[0])

    def _load_into(self, context: ssl.SSLContext) -> None:
        chain, key = self._files
        try:
            context.load_cert_chain(chain, key, password="")
        except (OSError, ssl.SSLError) as error:
            fault = (
                f"certificate={chain}, certificate_key={key}: expected PEM files that match, the key without"
                f" a passphrase: {error}"
            )
            raise ConfigurationError([fault]) from error

    def _seen(self) -> list[Stamp | None]:
        return [_stamp(file) for file in self._files]


def _stamp(file: str) -> Stamp | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
