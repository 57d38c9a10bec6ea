"""Checks and headers of every answer, as an ASGI middleware.

A page of any web site can make a browser send requests to 127.0.0.1, under a host name
that the site has pointed there (DNS rebinding). The browser sends that name as Host,
and such requests are refused. A page can also submit a form to the console. The browser
then sends the page's Origin, and only the console's own is accepted. The headers forbid
scripts, frames, use by other sites, and copies.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?")
_FORBIDDEN: Final = 403
_MISDIRECTED: Final = 421
_READING: Final = ("GET", "HEAD")
_HEADERS: Final = (
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    # Under "no-referrer" browsers send "null" as the Origin of a form.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cache-control", "no-store"),
)


class Guard:
    """Answers requests for ``hosts`` only, and adds the headers to every answer.

    None allows any host and requires a login. A browser keeps a session's cookie for
    the host name of the login, so another name shows nothing.
    """

    def __init__(self, app: ASGIApp, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS:
                    headers[name] = value
            await send(message)

        app, headers = self._app, Headers(scope=scope)
        if not self._is_expected(headers.getlist("host")):
            app = PlainTextResponse("unknown Host\n", status_code=_MISDIRECTED)
        elif scope["method"] not in _READING and not _is_own_form(headers):
            app = PlainTextResponse("unknown Origin\n", status_code=_FORBIDDEN)
        await app(scope, receive, send_guarded)

    def _is_expected(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        found = _HOST.fullmatch(hosts[0].lower())
        if found is None:
            return False
        return self._hosts is None or found.group(1) in self._hosts


def _is_own_form(headers: Headers) -> bool:
    host = headers["host"].lower()
    return headers.getlist("origin") in ([f"http://{host}"], [f"https://{host}"])
