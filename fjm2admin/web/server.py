"""Runs the service under uvicorn, from its sockets to its clean end."""

import asyncio
import contextlib
import resource
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import uvicorn

from fjm2.base.logs import Log

from ..config import AdminConfig, with_port
from ..registry.service import Service
from ..registry.store import Lock, Store
from . import pages, problems, sockets
from .api import make_app
from .certificate import Certificate
from .entrance import STUCK_S, Entrance, Served
from .gate import Gate
from .limits import Doors

_REQUEST_HEAD_S = 15.0
"""So long the head of a request may take to come."""
_KEEP_ALIVE_S = 60
_STOP_S = 5
_HEAD_BYTES = 16_384

log = Log("fjm2admin.server")


class _Protocol(Served):
    """Closes connections on which no whole request head comes, and those that take no answer."""

    stuck_s = STUCK_S
    """An answer of which nothing is taken for so long is given up."""
    _patience: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None
    _stuck_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._be_patient(_REQUEST_HEAD_S)

    def on_response_complete(self) -> None:
        self._be_patient(_KEEP_ALIVE_S + _REQUEST_HEAD_S)
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._patience, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """What was answered is not taken."""
        super().pause_writing()
        self._look_whether_it_moves()

    def resume_writing(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        super().resume_writing()

    def _look_whether_it_moves(self) -> None:
        self._stuck_bytes = self.transport.get_write_buffer_size()
        self._stuck = self.loop.call_later(self.stuck_s, self._give_up_if_stuck)

    def _give_up_if_stuck(self) -> None:
        if self.transport.get_write_buffer_size() < self._stuck_bytes:
            self._look_whether_it_moves()
        else:
            self.transport.abort()

    def _be_patient(self, seconds: float) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self.loop.call_later(seconds, self._lose_patience)

    def _lose_patience(self) -> None:
        # Of a request that was answered before its body had come, the rest may never come.
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not is_answering and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(config: AdminConfig, started: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM. `started` gets the page's URL."""
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
    entrance = Entrance(
        listener,
        Doors(config.connections_max, config.connections_per_address, config.proxies),
        certificate.context() if certificate else None,
        lambda: _Protocol(config=http, server_state=server.server_state, app_state={}),
    )

    def stop() -> None:
        if server.should_exit:
            server.force_exit = True  # asked twice, it does not wait for anybody
            return
        server.should_exit = True
        entrance.close()
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
        # Its warnings are of what strangers send, as often as they like.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_STOP_S,
        h11_max_incomplete_event_size=_HEAD_BYTES,
    )
    made.load()
    return made


@contextlib.contextmanager
def _fresh(certificate: Certificate | None) -> Iterator[None]:
    """Follow the certificate's files while it serves; SIGHUP has them read at once."""
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
    """Where the page is, for someone at this host."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if config.certificate else 'http'}://{shown}:{config.port}/"


def check(config: AdminConfig) -> None:
    """ConfigurationError if TLS is wanted and the files are not fit for it."""
    if config.certificate:
        Certificate(config).check()


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
