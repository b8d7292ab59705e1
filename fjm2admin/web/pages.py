"""The files of the page for operators, which are read once."""

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import Response

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "plots.js": "text/javascript; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def routes() -> APIRouter:
    """Return the routes of the page and the files that it needs."""
    router = APIRouter(include_in_schema=False)
    folder = files("fjm2admin") / "page"
    for name, kind in _TYPES.items():
        _add(router, "/" if name == "index.html" else f"/{name}", (folder / name).read_bytes(), kind)
    return router


def _add(router: APIRouter, path: str, content: bytes, kind: str) -> None:
    @router.api_route(path, methods=["GET", "HEAD"])
    async def page() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})
