"""A gateway as a service: with node list, status server, signals, and reload of the configuration."""

import asyncio
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fjm2.base import logs
from fjm2.base.logs import Log
from fjm2.base.readings import register_counted, unregister_counted
from fjm2.errors import ConfigError

from . import config as configuration
from .admin.directory import Directory
from .config import GatewayConfig
from .counting import GatewayCounters
from .errors import ConfigurationErrors, GatewayError
from .gateway import Gateway
from .keys import KeyPair
from .report import metrics_of, sample_of, status_of
from .roster import Member
from .status import StatusServer

log = Log("fjm2d.service")


class Service:
    """A gateway with its node list and its status server, run until a signal ends it."""

    def __init__(self, path: Path | None, config: GatewayConfig, keys: KeyPair) -> None:
        self.gateway = Gateway(config, keys)
        self._counters = GatewayCounters(self.gateway)
        self._path = path
        self._config = config
        self._keys = keys
        self._directory: Directory | None = None
        self._status = StatusServer(
            lambda: status_of(self.gateway, self._directory),
            lambda: metrics_of(self.gateway, self._directory),
            lambda: list(self.gateway.faults()),
        )
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()

    async def run(self) -> None:
        """Open everything, and run until SIGTERM or Ctrl-C. Raise GatewayError if something cannot be opened."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_log_unexpected)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        try:
            await self._status.open(self._config.status.listen)
            self.gateway.open()
            register_counted(self._counters)
            self._open_directory()
            await self._wait()
        except (ConfigError, OSError) as error:
            raise GatewayError(str(error)) from error
        finally:
            await self._close()

    async def _wait(self) -> None:
        stop = asyncio.ensure_future(self._stop.wait())
        while not stop.done():
            reload = asyncio.ensure_future(self._reload.wait())
            await asyncio.wait((stop, reload), return_when=asyncio.FIRST_COMPLETED)
            if reload.done():
                self._reload.clear()
                await self._reconfigure()
            reload.cancel()

    async def _close(self) -> None:
        if self._directory is not None:
            await self._directory.close()
        await self.gateway.close()
        unregister_counted(self._counters)
        await self._status.close()

    def _open_directory(self) -> None:
        config = self._config
        if config.admin.url:
            self._directory = Directory(config, self._keys.public, self._apply_list, lambda: sample_of(self.gateway))
            self.gateway.relay.on_advert = self._directory.receive_advert
            self._directory.open()

    def _apply_list(self, members: Iterable[Member]) -> None:
        self.gateway.registry.list_members(members)

    async def _reconfigure(self) -> None:
        """Read the configuration again. If it is wrong, log why and keep the present one."""
        try:
            config = configuration.load(self._path, os.environ)
            configuration.check_own_key(self._path, config, self._keys.public)
            fixed = self.gateway.reconfigure(config)
        except ConfigurationErrors as error:
            for one in error.errors:
                log.error("reload_refused", file=one.file, key=one.key, problem=one.problem, allowed=one.allowed)
            return
        except (ConfigError, GatewayError, OSError) as error:
            log.error("reload_refused", problem=str(error))
            return
        except Exception as error:
            log.failure("unexpected", error, doing="reading the settings again")
            return
        if fixed:
            log.error("reload_refused", problem="takes a restart", keys=list(fixed))
            return
        await self._adopt(config)
        log.info("reloaded", groups=len(config.groups), peers=len(config.peers))

    async def _adopt(self, config: GatewayConfig) -> None:
        before, self._config = self._config, config
        logs.set_up("fjm2d", config.log.level, config.log.format)
        try:
            await self._status.open(config.status.listen)
        except GatewayError as error:
            log.error("status_not_opened", problem=str(error))
        if _registered(before) != _registered(config):
            if self._directory is not None:
                await self._directory.close()
                self._directory, self.gateway.relay.on_advert = None, None
            if before.admin != config.admin:
                self._apply_list(())
            self._open_directory()


def _log_unexpected(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception that nothing handled. Only the callback or task that raised it ends."""
    log.failure("unexpected", context.get("exception"), doing=str(context.get("message", "")))


def _registered(config: GatewayConfig) -> tuple[object, ...]:
    """Return the settings that the registration at the node-list service depends on."""
    return (
        config.admin,
        config.shown_name,
        config.wan.endpoints,
        config.groups,
        config.lan.label,
        config.state_directory,
    )
