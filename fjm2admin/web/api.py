"""The HTTP API, version 1. It only translates requests: the service decides."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.responses import Response, StreamingResponse
from fastapi.security import HTTPBearer
from starlette.types import Receive, Scope, Send

from fjm2 import __version__
from fjm2.base import exposition

from ..errors import Refusal
from ..registry.measures import LinkSample
from ..registry.members import Measured
from ..registry.nodes import Profile
from ..registry.service import Caller, Service
from ..registry.tokens import Scope as TokenScope
from . import models, prometheus
from .feed import Snapshot
from .gate import Gate
from .problems import documented

WAIT_MAX_S = 30
"""Longest wait for a change of the list: common proxies end a request after 60 s without an answer."""
PIECE_BYTES = 65_536
"""Maximum number of bytes of an event that are written at once."""
_ABOUT = """
The list of an FJM2 network's gateways. A gateway registers, sends heartbeats, and reads the list of the others; it may
wait for the list to change. Each request needs a token, made with `fjm2admin token create`, as `Authorization: Bearer`.
"""

_bearer = HTTPBearer(auto_error=False, description="Made with `fjm2admin token create`.")
_ALWAYS = (401, 429, 503)
_NODE_ID = Path(pattern=r"^[0-9a-f]{8}$", description="Id of the node: 8 hexadecimal digits.")


def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _any_caller(request: Request) -> Caller:
    """Return the caller of any request that passed the gate."""
    return _caller(request)


async def _gateway(request: Request) -> Caller:
    caller = _caller(request)
    if caller.token.scope is not TokenScope.GATEWAY:
        raise Refusal(403, "wrong_scope", f"this needs a token of scope gateway; this one has {caller.token.scope}")
    return caller


async def _writer(request: Request) -> Caller:
    caller = _caller(request)
    if caller.token.scope is TokenScope.VIEW:
        raise Refusal(403, "wrong_scope", "a token of scope view may not change anything")
    return caller


AnyCaller = Annotated[Caller, Depends(_any_caller)]
GatewayCaller = Annotated[Caller, Depends(_gateway)]
WritingCaller = Annotated[Caller, Depends(_writer)]
NodeId = Annotated[str, _NODE_ID]


def make_app(service: Service) -> tuple[FastAPI, Gate]:
    """Return the application, and the gate around it. The gate is to be served."""
    app = FastAPI(
        title="FJM2 node list",
        version=__version__,
        description=_ABOUT,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        openapi_tags=[{"name": "gateways"}, {"name": "watching"}, {"name": "service"}],
    )
    gate = Gate(app, service.config, service)
    for routes in (_registering_routes, _reporting_routes, _list_routes, _watching_routes):
        app.include_router(routes(service))
    app.include_router(_service_routes(service, gate))
    return app, gate


_HEARD = documented(400, *_ALWAYS, 403, 404, 408, 413, 422)


def _registering_routes(service: Service) -> APIRouter:
    """Return the routes to register and remove a gateway."""
    router = _gateways_router()

    @router.post(
        "/nodes", response_model=models.Registered, responses=documented(400, *_ALWAYS, 403, 408, 409, 413, 422)
    )
    async def register(caller: GatewayCaller, body: models.Registration) -> models.Registered:
        """Put a gateway on the list, or update its entry."""
        node = await service.register(caller, _profile(body))
        return models.Registered(
            id=node.id,
            list_version=service.feed.snapshot.version,
            heartbeat_s=service.config.heartbeat_s,
            advert=models.AdvertPlace(port=service.advert_port),
        )

    @router.delete(
        "/nodes/{id}", status_code=204, response_class=Response, responses=documented(*_ALWAYS, 403, 404, 408, 413, 422)
    )
    async def remove(caller: WritingCaller, id: NodeId) -> Response:  # noqa: A002
        """Take a gateway off the list. This needs the token that registered it, or a token of scope admin."""
        await service.remove(caller, id)
        return Response(status_code=204)

    return router


def _reporting_routes(service: Service) -> APIRouter:
    """Return the routes for heartbeats and measurements."""
    router = _gateways_router()

    @router.post("/nodes/{id}/heartbeat", response_model=models.Heard, responses=_HEARD)
    async def heartbeat(caller: GatewayCaller, id: NodeId, body: models.Heartbeat) -> models.Heard:  # noqa: A002
        """Report that a gateway is alive, with new endpoints if they have changed, and measurements if any."""
        measured = None if body.metrics is None else _measured(body.metrics)
        await service.heartbeat(caller, id, body.endpoints, measured)
        return models.Heard(list_version=service.feed.snapshot.version)

    @router.post("/nodes/{id}/metrics", response_model=models.Heard, responses=_HEARD)
    async def upload(caller: GatewayCaller, id: NodeId, body: models.Upload) -> models.Heard:  # noqa: A002
        """Upload measurements of a gateway to the service. This counts as a heartbeat."""
        await service.upload(caller, id, [_measured(sample) for sample in body.samples])
        return models.Heard(list_version=service.feed.snapshot.version)

    return router


def _list_routes(service: Service) -> APIRouter:
    """Return the route that serves the list, at once or after it has changed."""
    router = _gateways_router()

    @router.get(
        "/nodes",
        response_model=models.NodeList,
        responses={
            200: {"headers": {"ETag": {"description": "The list's version, quoted.", "schema": {"type": "string"}}}},
            304: {"description": "The list still has the version in If-None-Match."},
            **documented(*_ALWAYS, 422),
        },
    )
    async def list_nodes(
        request: Request,
        caller: AnyCaller,
        wait: Annotated[
            float, Query(ge=0, le=WAIT_MAX_S, description="With If-None-Match: seconds to wait for a newer list.")
        ] = 0,
        if_none_match: Annotated[str | None, Header(max_length=256, description="ETag of the known list.")] = None,
        accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> Response:
        """Return the gateways that are live or stale. With `wait`, the answer comes as soon as the list has changed."""
        if wait and _is_same(if_none_match, service.feed.snapshot):
            await _wait_within_limits(service, caller, request, wait)
        return _list_answer(service.feed.snapshot, if_none_match, accept_encoding)

    return router


def _gateways_router() -> APIRouter:
    return APIRouter(prefix="/api/v1", tags=["gateways"], dependencies=[Depends(_bearer)])


def _profile(body: models.Registration) -> Profile:
    return Profile(
        models.node_id_of(body.public_key),
        body.name,
        body.public_key,
        body.endpoints,
        body.groups,
        body.lan,
        body.version,
    )


def _measured(sample: models.Sample) -> Measured:
    links = [
        LinkSample(
            link.peer,
            link.bytes_in,
            link.bytes_out,
            link.drops,
            link.loss,
            link.rtt_ms,
            link.queue_bytes,
            link.is_up,
            link.rate_bps,
        )
        for link in sample.links
    ]
    return Measured(sample.uptime_s, links, sample.is_forwarder)


def _is_same(if_none_match: str | None, snapshot: Snapshot) -> bool:
    if if_none_match is None:
        return False
    tags = (tag.strip().removeprefix("W/") for tag in if_none_match.split(","))
    return any(tag in ("*", snapshot.etag) for tag in tags)


async def _wait_within_limits(service: Service, caller: Caller, request: Request, seconds: float) -> None:
    """Wait for the list to change. Raise Refusal if too many requests wait, or if the token is revoked meanwhile."""
    token_id = caller.token.id
    service.waits.acquire(token_id)
    try:
        await _wait_for_list(service, request, seconds)
    finally:
        service.waits.release(token_id)
    if not _may_go_on(service, caller):
        raise Refusal(401, "unauthorised", "the token has been revoked")


def _may_go_on(service: Service, caller: Caller) -> bool:
    """Return True unless the caller's token was revoked. Viewers without a token may go on."""
    return caller.token.is_open or service.tokens.is_live(caller.token.id)


async def _wait_for_list(service: Service, request: Request, seconds: float) -> None:
    """Wait until the list changes, the time is over, or the client has left."""
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await service.feed.wait(seconds, gone)
    finally:
        gone.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _list_answer(snapshot: Snapshot, if_none_match: str | None, accept_encoding: str) -> Response:
    headers = {"ETag": snapshot.etag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding, Authorization"}
    if _is_same(if_none_match, snapshot):
        return Response(status_code=304, headers=headers)
    if "gzip" in accept_encoding.lower():
        headers["Content-Encoding"] = "gzip"
        return Response(snapshot.compressed, headers=headers, media_type="application/json")
    return Response(snapshot.body, headers=headers, media_type="application/json")


def _watching_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api/v1", tags=["watching"], dependencies=[Depends(_bearer)])

    @router.get("/nodes/{id}/history", response_model=models.History, responses=documented(*_ALWAYS, 404, 422))
    async def history(
        caller: AnyCaller,  # noqa: ARG001, it declares that a token is needed
        id: NodeId,  # noqa: A002
        minutes: Annotated[int, Query(ge=1, le=10_080, description="Minutes of history up to now.")] = 60,
    ) -> models.History:
        """Return a node's history in slots of 10 s for up to an hour, a minute up to a day, 15 minutes up to a week."""
        step_s, points = await service.history(id, minutes)
        return models.History(id=id, step_s=step_s, points=[models.HistoryPoint(**point._asdict()) for point in points])

    @router.get(
        "/events",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "Server-sent events: `snapshot` with all nodes, then `changes` once a second at most.",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            **documented(*_ALWAYS),
        },
    )
    async def events(caller: AnyCaller) -> StreamingResponse:
        """Stream the nodes, their links and rates as they change, until the client leaves."""
        service.streams.acquire(caller.token.id)
        return _EventStream(service, caller)

    return router


async def in_pieces(events: AsyncIterator[bytes]) -> AsyncIterator[memoryview]:
    """Yield events in pieces, so that a slow connection buffers no more than a piece of a long event."""
    async for event in events:
        for at in range(0, len(event), PIECE_BYTES):
            yield memoryview(event)[at : at + PIECE_BYTES]


class _EventStream(StreamingResponse):
    """Stream of events. It releases its place in the limit even if the client leaves before the first event."""

    def __init__(self, service: Service, caller: Caller) -> None:
        super().__init__(
            in_pieces(service.live.events(lambda: _may_go_on(service, caller))),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._service = service
        self._caller = caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.streams.release(self._caller.token.id)


def _service_routes(service: Service, gate: Gate) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.head("/healthz", include_in_schema=False)
    @router.get(
        "/healthz",
        response_model=models.Health,
        responses={
            503: {"model": models.Health, "description": "The service cannot use its file."},
            429: documented(429)[429],
        },
    )
    async def healthz() -> Response:
        """Report whether the service works."""
        is_well = service.fault is None
        health = models.Health(status="ok" if is_well else "failing", reason=None if is_well else "store")
        return Response(health.model_dump_json(), 200 if is_well else 503, media_type="application/json")

    @router.get(
        "/metrics",
        dependencies=[Depends(_bearer)],
        response_class=Response,
        responses={
            200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **documented(401, 429),
        },
    )
    async def metrics(caller: AnyCaller) -> Response:  # noqa: ARG001
        """Return the metrics of the service for Prometheus."""
        return Response(prometheus.text(service, gate.answers), media_type=exposition.CONTENT_TYPE)

    return router
