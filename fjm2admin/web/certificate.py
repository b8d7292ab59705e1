"""The service's TLS certificate: used only if its files fit together, and read again when they have changed."""

import asyncio
import os
import ssl

from fjm2.base.logs import Log

from ..config import AdminConfig
from ..errors import ConfigurationError

_WATCH_S = 2.0

log = Log("fjm2admin.tls")

Stamp = tuple[int, int, int]
"""What tells that a file is another one, or has been written to."""


class Certificate:
    """Chain and key of a configuration that has them, in a context that connections are made with."""

    def __init__(self, config: AdminConfig) -> None:
        self._files = (config.certificate, config.certificate_key)
        self._stamps: list[Stamp | None] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def check(self) -> None:
        """ConfigurationError if the files are not fit for use."""
        self._load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def context(self) -> ssl.SSLContext:
        """What connections are made with, for good. ConfigurationError if the files are not fit for use."""
        self._stamps = self._seen()
        self._load_into(self._context)
        return self._context

    async def watch(self) -> None:
        """Run for good: what the files become is what new connections get."""
        while True:
            await asyncio.sleep(_WATCH_S)
            if self._seen() != self._stamps:
                self.reload()

    def reload(self) -> None:
        """Read the files again. If they do not fit, as between writing one and the other, all stays as it was."""
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
                f"certificate={chain}, certificate_key={key}: expected PEM files that belong together, the key without"
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
