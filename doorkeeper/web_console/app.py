"""The web application: addresses to pages, one time limit, errors as pages."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from broker.protocol.errors import KafkaError
from doorkeeper.web_console.cluster_view import ClusterView
from doorkeeper.web_console.guard import LOOPBACK_NAMES, Guard
from doorkeeper.web_console.pages import PAGES, SOURCES, Content, NoSuchPage, reason
from doorkeeper.web_console.rendering import TEMPLATES, Exact, environment

# Time for all that a page asks its cluster.
LIMIT_S: Final = 10.0
# Pages that ask clusters at the same time; further ones wait, within their limit.
_AT_ONCE: Final = 8
_REFRESH_S: Final = 10
_NOT_FOUND, _BAD_GATEWAY, _TIMEOUT = 404, 502, 504


class Console:
    """Answers requests about some clusters."""

    def __init__(self, views: Sequence[ClusterView]) -> None:
        self._views = views
        self._environment = environment()
        self._turns = trio.CapacityLimiter(_AT_ONCE)
        self._style = (TEMPLATES / "console.css").read_text(encoding="utf-8")

    def app(self, hosts: frozenset[str] = LOOPBACK_NAMES) -> ASGIApp:
        """Return the application, which answers requests for ``hosts``."""
        routes = [
            Route("/", self._home),
            Route("/console.css", self._stylesheet),
            Route("/clusters/{number:int}/{page}", self._page),
        ]
        missing = {_NOT_FOUND: self._missing}
        return Guard(Starlette(routes=routes, exception_handlers=missing), hosts)

    async def _home(self, request: Request) -> Response:
        if len(self._views) == 1:
            return RedirectResponse("/clusters/0/cluster")
        return self._render("clusters", request)

    async def _stylesheet(self, request: Request) -> Response:
        return Response(self._style, media_type="text/css")

    async def _missing(self, request: Request, _: Exception) -> Response:
        return self._problem(request, _NOT_FOUND, "there is no such page")

    async def _page(self, request: Request) -> Response:
        number, name = request.path_params["number"], request.path_params["page"]
        if number >= len(self._views) or name not in PAGES:
            return self._problem(request, _NOT_FOUND, "there is no such page")
        view = self._views[number]
        with trio.move_on_after(LIMIT_S):
            try:
                async with self._turns:
                    content = await PAGES[name](view, request.query_params)
            except NoSuchPage as error:
                return self._problem(request, _NOT_FOUND, str(error), number)
            except KafkaError as error:
                return self._problem(request, _BAD_GATEWAY, reason(error), number)
            return self._render(name, request, number, content=content)
        why = f"the cluster has not answered within {LIMIT_S:.0f} s"
        return self._problem(request, _TIMEOUT, why, number)

    def _problem(
        self, request: Request, status: int, why: str, number: int | None = None
    ) -> Response:
        return self._render("problem", request, number, status, {"why": why})

    def _render(
        self,
        name: str,
        request: Request,
        number: int | None = None,
        status: int = 200,
        content: Content = MappingProxyType({}),
    ) -> Response:
        query = {key: Exact(it) for key, it in request.query_params.items()}
        template = self._environment.get_template(f"{name}.html.j2")
        text = template.render(
            views=self._views,
            number=number,
            path=request.url.path,
            query=query,
            refresh_s=_REFRESH_S if "refresh" in query else None,
            sources=SOURCES,
            reason=reason,
            status=status,
            **content,
        )
        return HTMLResponse(text, status_code=status)
