"""Runs the service under uvicorn, from its sockets to its clean end."""

import asyncio
import contextlib
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Iterator

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from . import pages, problems, sockets
from .api import make_app
from .config import AdminConfig, with_port
from .errors import AdminError
from .service import Service
from .store import Lock, Store

_REQUEST_HEAD_S = 15.0
"""So long the head of a request may take to come."""
_KEEP_ALIVE_S = 60
_STOP_S = 5
_HEAD_BYTES = 16_384


class _Protocol(H11Protocol):
    """Closes connections on which no whole request head comes."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._be_patient(_REQUEST_HEAD_S)

    def on_response_complete(self) -> None:
        self._be_patient(_KEEP_ALIVE_S + _REQUEST_HEAD_S)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._patience is not None:
            self._patience.cancel()
        super().connection_lost(exc)

    def _be_patient(self, seconds: float) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(seconds, self._lose_patience)

    def _lose_patience(self) -> None:
        is_answering = self.conn.our_state is not h11.IDLE or self.conn.their_state is not h11.IDLE
        if not is_answering and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: AdminConfig, started: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `started` gets the page's URL."""
    certificate_check(config)
    with contextlib.ExitStack() as stack:
        stack.enter_context(Lock(config.data_path))
        listener = stack.enter_context(contextlib.closing(sockets.listen(config.host, config.port)))
        config = with_port(config, listener.getsockname()[1])
        udp = sockets.datagrams(config.host, config.advert_port) if config.advert_port else None
        service = Service(config, Store(config.data_path), udp)
        await service.start()
        try:
            await _serve(service, listener, started)
        finally:
            await service.close()


async def _serve(service: Service, listener: socket.socket, started: Callable[[str], None]) -> None:
    config = service.config
    app, gate = make_app(service)
    app.include_router(pages.routes())
    problems.install(app)
    server = _Server(
        uvicorn.Config(
            gate,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
            limit_concurrency=config.connections_max,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            ssl_certfile=config.certificate or None,
            ssl_keyfile=config.certificate_key or None,
        )
    )
    loop = asyncio.get_running_loop()

    def stop() -> None:
        # Asked twice, it does not wait for anybody.
        server.force_exit = server.should_exit
        server.should_exit = True
        service.end_waits()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    started(url(config))
    await server.serve([listener])


def url(config: AdminConfig) -> str:
    """Where the page is, for someone at this host."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if config.certificate else 'http'}://{shown}:{config.port}/"


def certificate_check(config: AdminConfig) -> None:
    """AdminError if TLS is wanted and the files are not fit for it."""
    if not config.certificate:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(config.certificate, config.certificate_key, password="")
    except (OSError, ssl.SSLError) as error:
        raise AdminError(
            f"certificate={config.certificate}, certificate_key={config.certificate_key}: expected PEM files that"
            f" belong together, the key without a passphrase: {error}"
        ) from error


def run(config: AdminConfig, started: Callable[[str], None]) -> None:
    """`serve` in an event loop of its own."""
    _allow_connections()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve(config, started))


def _allow_connections() -> None:
    """As many files as the system lets us have: each gateway that waits is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
