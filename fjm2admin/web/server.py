"""The server: it runs the service under uvicorn, from opening its sockets to a clean end."""

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from fjm2.base.event_loop import uvloop_class
from fjm2.base.interrupts import end_at_interrupts
from fjm2.base.logs import Log

from ..config import AdminConfig, with_port
from ..registry.service import Service
from ..registry.store import Lock, Store
from . import pages, problems, sockets
from .acceptor import STUCK_S, Acceptor, TrackedProtocol
from .api import make_app
from .certificate import Certificate
from .gate import Gate
from .limits import ConnectionLimit

REQUEST_HEAD_S = 15.0
"""Longest time for the head of a request to arrive."""
KEEP_ALIVE_S = 60
"""Longest idle time of a connection between two requests."""
_STOP_S = 5
"""Longest wait for requests that are still being answered when the server stops."""
_HEAD_BYTES_MAX = 16_384
"""Longest head of a request. Browsers and gateways send a few hundred bytes."""

log = Log("fjm2admin.server")


class HttpProtocol(TrackedProtocol):
    """HTTP protocol that closes connections whose client is too slow to send a request's head or to read an answer."""

    stuck_s = STUCK_S
    """Time after which a connection is closed if its client reads nothing of the answer."""
    _head_timer: asyncio.TimerHandle | None = None
    _stuck_timer: asyncio.TimerHandle | None = None
    _stuck_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head_within(REQUEST_HEAD_S)

    def on_response_complete(self) -> None:
        self._expect_head_within(KEEP_ALIVE_S + REQUEST_HEAD_S)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._stuck_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Begin to watch whether the client reads the data that is buffered for it."""
        super().pause_writing()
        self._watch_progress()

    def resume_writing(self) -> None:
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()
        super().resume_writing()

    def _watch_progress(self) -> None:
        self._stuck_bytes = self.transport.get_write_buffer_size()
        self._stuck_timer = self.loop.call_later(self.stuck_s, self._abort_if_stuck)

    def _abort_if_stuck(self) -> None:
        if self.transport.get_write_buffer_size() < self._stuck_bytes:
            self._watch_progress()
        else:
            self.transport.abort()

    def _expect_head_within(self, seconds: float) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        self._head_timer = self.loop.call_later(seconds, self._lose_head_timer)

    def _lose_head_timer(self) -> None:
        # The rest of a request that was answered before its body had come may never come.
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not is_answering and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Server that leaves signals to `_serve`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: AdminConfig, started: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. Call `started` with the page's URL when the service is ready."""
    check(config)
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
    certificate = Certificate(config) if config.certificate else None
    http = _http(gate)
    server = _Server(http)
    acceptor = Acceptor(
        listener,
        ConnectionLimit(config.connections_max, config.connections_per_address, config.proxies),
        certificate.context() if certificate else None,
        lambda: HttpProtocol(config=http, server_state=server.server_state, app_state={}),
    )

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True  # on the second signal, do not wait for requests
            return
        server.should_exit = True
        acceptor.close()
        service.end_waits()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with _fresh(certificate):
        started(url(config))
        await server.serve([])


def _http(gate: Gate) -> uvicorn.Config:
    made = uvicorn.Config(
        gate,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        # The warnings of uvicorn are about malformed requests, which strangers can send without limit.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
        h11_max_incomplete_event_size=_HEAD_BYTES_MAX,
    )
    made.load()
    return made


@contextlib.contextmanager
def _fresh(certificate: Certificate | None) -> Iterator[None]:
    """Follow the certificate's files while the server runs. SIGHUP loads them at once."""
    loop = asyncio.get_running_loop()
    if certificate is None:
        loop.add_signal_handler(signal.SIGHUP, lambda: log.info("nothing_to_reload", settings="take a restart"))
        yield
        return
    loop.add_signal_handler(signal.SIGHUP, certificate.reload)
    watching = loop.create_task(certificate.watch())
    try:
        yield
    finally:
        watching.cancel()


def url(config: AdminConfig) -> str:
    """Return the URL of the page, as seen from this host."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if config.certificate else 'http'}://{shown}:{config.port}/"


def check(config: AdminConfig) -> None:
    """Raise ConfigurationError if TLS is configured and its files cannot be used."""
    if config.certificate:
        Certificate(config).check()


def run(config: AdminConfig, started: Callable[[str], None]) -> None:
    """Run `serve` in an event loop of its own."""
    _allow_connections()
    end_at_interrupts()
    with asyncio.Runner(loop_factory=uvloop_class()) as runner:
        runner.run(serve(config, started))


def _allow_connections() -> None:
    """Raise the limit of open files as far as the system allows: each gateway that waits takes one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
