"""Errors over HTTP, all in one form."""

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
    401: "No token, or none that is valid.",
    403: "The token does not permit this.",
    404: "There is no such node.",
    408: "The body did not arrive in time.",
    409: "The name or key is registered with another token.",
    413: "The body is too long.",
    422: "A value is missing or out of range; the message says which.",
    429: "Too many requests; Retry-After says when to try again.",
    503: "Full, busy or unable to use its file; Retry-After says when to try again.",
}
_CODES = {400: "unreadable", 404: "not_found", 405: "method_not_allowed", 413: "too_long"}
_FAULTS_MAX = 5
"""Maximum number of faults of a request that an answer names."""
_TEXT_CHARACTERS_MAX = 200
"""Maximum number of characters of a text that an answer quotes."""


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of an operation's errors, for OpenAPI."""
    return {status: _documented(status) for status in statuses}


def _documented(status: int) -> dict[str, Any]:
    entry: dict[str, Any] = {"model": Problem, "description": _TEXTS[status]}
    if status in (429, 503):
        entry["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    if status == 401:
        entry["headers"] = {"WWW-Authenticate": {"description": "Bearer.", "schema": {"type": "string"}}}
    return entry


def problem(refusal: Refusal) -> Response:
    """Return the answer to a refused request."""
    headers = {"Cache-Control": "no-store"}
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after_s)))
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    # The body is in ASCII, so that any text from the request can be quoted.
    body = json.dumps({"code": refusal.code, "message": refusal.message})
    return Response(body, refusal.status, headers, "application/json")


def install(app: FastAPI) -> None:
    """Make the application answer all exceptions in the form of `Problem`."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> Response:
        return problem(error)

    @app.exception_handler(StoreError)
    async def no_store(_: Request, error: StoreError) -> Response:
        log.seldom(logging.ERROR, "store_failed", str(error), error=str(error))
        return problem(Refusal(503, "no_store", "the service cannot use its file", 5))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        text = "; ".join(_text_of(fault) for fault in error.errors()[:_FAULTS_MAX])
        return problem(Refusal(422, "invalid", text))

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> Response:
        code = _CODES.get(error.status_code, "refused")
        answer = problem(Refusal(error.status_code, code, str(error.detail)))
        answer.headers.update(error.headers or {})
        return answer


def _text_of(fault: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in fault["loc"])
    return f"{where[:_TEXT_CHARACTERS_MAX]}: {str(fault['msg'])[:_TEXT_CHARACTERS_MAX]}"
