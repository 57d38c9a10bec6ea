"""The web application: addresses to pages, one time limit, errors as pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from logging import getLogger
from types import MappingProxyType
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from broker.observation.logs import fields
from broker.protocol.errors import KafkaError
from doorkeeper.web_console.actions import ACTIONS
from doorkeeper.web_console.change import Action, Change, Form, Outcome, Refused
from doorkeeper.web_console.cluster_view import ClusterView
from doorkeeper.web_console.guard import LOOPBACK_NAMES, Guard
from doorkeeper.web_console.login import Password, TooManyAttempts
from doorkeeper.web_console.pages import PAGES, SOURCES, Content, NoSuchPage, reason
from doorkeeper.web_console.rendering import TEMPLATES, Exact, environment, link
from doorkeeper.web_console.sessions import Sessions

logger = getLogger(__name__)

# Time limit for all queries of a page.
LIMIT_S: Final = 10.0
# Pages that query clusters at the same time; further ones wait, within their limit.
_AT_ONCE: Final = 8
_REFRESH_S: Final = 10
_FORM_BYTES_MAX: Final = 2 << 20
_FORM_FIELDS_MAX: Final = 20
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _TOO_LARGE = 400, 403, 404, 413
_BAD_GATEWAY, _TIMEOUT = 502, 504
_SEE_OTHER, _TOO_MANY = 303, 429
_Answer: TypeAlias = Callable[[Request], Awaitable[Response]]


class _BadForm(Exception):
    """A body that is no form, or too large."""


class Console:
    """Answers requests about some clusters."""

    def __init__(
        self,
        views: Sequence[ClusterView],
        *,
        allow_changes: bool = False,
        password: Password | None = None,
    ) -> None:
        self._views = views
        self._allow_changes = allow_changes
        self._password = password
        self._sessions = Sessions(has_login=password is not None)
        self._environment = environment()
        self._turns = trio.CapacityLimiter(_AT_ONCE)
        self._style = (TEMPLATES / "console.css").read_text(encoding="utf-8")
        self._icon = (TEMPLATES / "icon.svg").read_text(encoding="utf-8")

    def app(self, hosts: frozenset[str] | None = LOOPBACK_NAMES) -> ASGIApp:
        """Return the application, which answers requests for ``hosts``, or for any."""
        change = "/clusters/{number:int}/change/{action}"
        routes = [
            Route("/", self._inside(self._home)),
            Route("/console.css", self._stylesheet),
            Route("/icon.svg", self._picture),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route(change, self._inside(self._change), methods=["GET", "POST"]),
            Route("/clusters/{number:int}/{page}", self._inside(self._page)),
        ]
        missing = {_NOT_FOUND: self._missing}
        return Guard(Starlette(routes=routes, exception_handlers=missing), hosts)

    async def _home(self, request: Request) -> Response:
        if len(self._views) == 1:
            return RedirectResponse("/clusters/0/cluster")
        return self._render("clusters", request)

    async def _stylesheet(self, request: Request) -> Response:
        return Response(self._style, media_type="text/css")

    async def _picture(self, request: Request) -> Response:
        return Response(self._icon, media_type="image/svg+xml")

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
        return self._problem(request, _TIMEOUT, _SILENT, number)

    # ---- the login ------------------------------------------------------------------

    def _inside(self, answer: _Answer) -> _Answer:
        """Return ``answer`` for open sessions, and the login's address for others."""

        async def checked(request: Request) -> Response:
            if self._sessions.is_open(request):
                return await answer(request)
            return RedirectResponse("/login", _SEE_OTHER)

        return checked

    async def _login(self, request: Request) -> Response:
        if self._password is None:
            return RedirectResponse("/", _SEE_OTHER)
        if request.method != "POST":
            return self._render("login", request, content={"why": ""})
        given = await self._own_form(request)
        if isinstance(given, Response):
            return given
        address = request.client.host if request.client else ""
        try:
            is_right = self._password.is_right(given.get("password", ""), address)
        except TooManyAttempts:
            logger.warning("logins are refused", extra=fields(client=address))
            content = {"why": "too many attempts have failed: try again in a minute"}
            return self._render("login", request, None, _TOO_MANY, content)
        if not is_right:
            logger.warning("login has failed", extra=fields(client=address))
            content = {"why": "this is not the password"}
            return self._render("login", request, None, _FORBIDDEN, content)
        logger.info("logged in", extra=fields(client=address))
        response = RedirectResponse("/", _SEE_OTHER)
        self._sessions.end(request)
        self._sessions.keep(request, response, self._sessions.open())
        return response

    async def _logout(self, request: Request) -> Response:
        given = await self._own_form(request)
        if isinstance(given, Response):
            return given
        self._sessions.end(request)
        return RedirectResponse("/login", _SEE_OTHER)

    async def _own_form(
        self, request: Request, number: int | None = None
    ) -> Mapping[str, str] | Response:
        """Return the fields of a form of the request's session, or a refusal."""
        try:
            given = await _form_of(request)
        except _BadForm as error:
            return self._problem(request, _TOO_LARGE, str(error), number)
        if not self._sessions.owns(request, given.get("token", "")):
            why = "the form is not of this session: go back, and load its page again"
            return self._problem(request, _FORBIDDEN, why, number)
        return given

    # ---- changes --------------------------------------------------------------------

    async def _change(self, request: Request) -> Response:
        """Show a form, a preview of its change, or the outcome."""
        number, name = request.path_params["number"], request.path_params["action"]
        if number >= len(self._views) or name not in ACTIONS:
            return self._problem(request, _NOT_FOUND, "there is no such page")
        if not self._allow_changes:
            why = "this console is read-only: it was started without --allow-changes"
            return self._problem(request, _FORBIDDEN, why, number)
        if request.method != "POST":
            given: Mapping[str, str] = request.query_params
            return await self._prepare(request, number, ACTIONS[name], given)
        form = await self._own_form(request, number)
        if isinstance(form, Response):
            return form
        return await self._prepare(
            request, number, ACTIONS[name], form, is_confirmed=True
        )

    async def _prepare(
        self,
        request: Request,
        number: int,
        action: Action,
        given: Mapping[str, str],
        *,
        is_confirmed: bool = False,
    ) -> Response:
        """Describe a change, and make it if it ``is_confirmed`` for."""
        view = self._views[number]
        change: Change | None = None
        outcome: Outcome | None = None
        refused = ""
        values = {it.name: given.get(it.name, "") for it in action.fields}
        try:
            form = Form(action.fields, given)
            values = form.values
            if is_confirmed or "preview" in given:
                # A change is prepared from fresh answers.
                view.invalidate()
                with trio.fail_after(LIMIT_S):
                    async with self._turns:
                        change = await action.prepare(view, form)
                        values = {**values, **change.computed}
                        if is_confirmed:
                            outcome = await self._carry_out(request, view, change)
        except (Refused, NoSuchPage) as error:
            refused = str(error)
        except KafkaError as error:
            refused = reason(error)
        except trio.TooSlowError:
            refused = _SILENT
        content = {
            "action": action,
            "values": {key: Exact(it) for key, it in values.items()},
            "change": change,
            "outcome": outcome,
            "refused": refused,
            "section": _SECTIONS.get(action.page, action.page),
        }
        status = _BAD_REQUEST if refused else 200
        return self._render("change", request, number, status, content)

    async def _carry_out(
        self, request: Request, view: ClusterView, change: Change
    ) -> Outcome:
        """Make a change; log it before, and its outcome after."""
        logged = {
            "client": request.client.host if request.client else "",
            "cluster": view.name,
            "commands": "; ".join(change.commands),
        }
        logger.info("change is carried out", extra=fields(**logged, **change.files))
        outcome = "unknown: it was cut off"
        try:
            found = await change.carry_out()
            outcome = "; ".join((*found.done, *found.failed))
        except (Refused, KafkaError) as error:
            outcome = f"failed: {error}"
            raise
        finally:
            logger.info("change has ended", extra=fields(**logged, outcome=outcome))
            view.invalidate()
        return found

    # ---- answers --------------------------------------------------------------------

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
        session = self._sessions.of(request)
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
            offered=self._offered(name, number, query),
            token=self._sessions.token(session),
            has_logout=self._sessions.has_login and name != "login",
            **{"section": _SECTIONS.get(name, name), **content},
        )
        response = HTMLResponse(text, status_code=status)
        if self._allow_changes or self._sessions.has_login:
            self._sessions.keep(request, response, session)
        return response

    def _offered(
        self, page: str, number: int | None, query: Mapping[str, str]
    ) -> list[tuple[str, str]]:
        """Return titles and addresses of the changes that a page offers."""
        if not self._allow_changes:
            return []
        return [
            (
                action.title,
                link(
                    f"/clusters/{number}/change/{name}",
                    {field: query.get(key) for field, key in action.given.items()},
                ),
            )
            for name, action in ACTIONS.items()
            if action.page == page
        ]


# The page of the navigation that a page belongs to, if it is not one itself.
_SECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"broker": "cluster", "topic": "topics", "records": "topics", "group": "groups"}
)
_SILENT: Final = f"the cluster has not answered within {LIMIT_S:.0f} s"


async def _form_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form, the first of each name; raises `_BadForm`."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM_TYPE:
        raise _BadForm("the request carries no form")
    body = b""
    async with aclosing(request.stream()) as stream:
        async for chunk in stream:
            body += chunk
            if len(body) > _FORM_BYTES_MAX:
                raise _BadForm("the form is too large")
    try:
        pairs = parse_qsl(
            body.decode("latin-1"),
            keep_blank_values=True,
            max_num_fields=_FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise _BadForm("the form has too many fields") from error
    return dict(reversed(pairs))
