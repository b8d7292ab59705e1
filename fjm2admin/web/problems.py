"""Every error that HTTP sees has one form, and comes from one place."""

import json
import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fjm2.base.logs import Log

from ..errors import Refusal, StoreError
from .models import Problem

log = Log("fjm2admin.http")

_TEXTS = {
    400: "The body cannot be read.",
    401: "No token, or none that is good.",
    403: "The token is not good for this.",
    404: "There is no such node.",
    408: "The body did not come in time.",
    409: "The name or key is somebody else's.",
    413: "The body is too long.",
    422: "A value is missing or out of bounds; the message says which.",
    429: "Too often; Retry-After says when again.",
    503: "Full, busy or without its file; Retry-After says when again.",
}
_CODES = {400: "unreadable", 404: "not_found", 405: "method_not_allowed", 413: "too_long"}
_FAULTS_TOLD = 5
_TEXT_MAX = 200


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: what an operation may be refused with."""
    return {status: _documented(status) for status in statuses}


def _documented(status: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"model": Problem, "description": _TEXTS[status]}
    if status in (429, 503):
        entry["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    if status == 401:
        entry["headers"] = {"WWW-Authenticate": {"description": "Bearer.", "schema": {"type": "string"}}}
    return entry


def problem(refusal: Refusal) -> Response:
    """The answer to a refused request."""
    headers = {"Cache-Control": "no-store"}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after_s)))
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # ASCII: whatever was in the request can be told.
    body = json.dumps({"code": refusal.code, "message": refusal.message})
    return Response(body, refusal.status, headers, "application/json")


def install(app: FastAPI) -> None:
    """Have all exceptions answered in this form."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> Response:
        return problem(error)

    @app.exception_handler(StoreError)
    async def no_store(_: Request, error: StoreError) -> Response:
        log.seldom(logging.ERROR, "store_failed", str(error), error=str(error))
        return problem(Refusal(503, "no_store", "the service cannot use its file", 5))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        told = "; ".join(_told(fault) for fault in error.errors()[:_FAULTS_TOLD])
        return problem(Refusal(422, "invalid", told))

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> Response:
        code = _CODES.get(error.status_code, "refused")
        answer = problem(Refusal(error.status_code, code, str(error.detail)))
        answer.headers.update(error.headers or {})
        return answer


def _told(fault: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    return f"{where[:_TEXT_MAX]}: {str(fault['msg'])[:_TEXT_MAX]}"
