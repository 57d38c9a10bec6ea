"""Sessions of browsers, and the tokens of forms that belong to them.

A session is a random name in a cookie. A form carries its token, an HMAC of that name.
Another site cannot read pages, so it cannot submit a form (CSRF). In addition, SameSite
keeps the cookie out of other sites' requests, and `guard` compares the Origin.

With a login a session opens when the password is given, under a new name. A name that
an attacker has put into the browser therefore opens nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

import trio
from starlette.requests import Request
from starlette.responses import Response

# Time without a request after which an open session ends.
IDLE_S: Final = 43_200.0
_OPEN_MAX: Final = 100
_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Sessions:
    """The sessions of one process; they end with it."""

    def __init__(self, *, has_login: bool = False) -> None:
        self.has_login = has_login
        self._secret = secrets.token_bytes(32)
        # Instants of the newest request of each open session, oldest first.
        self._open: dict[str, float] = {}

    def of(self, request: Request) -> str:
        """Return the session of a request, a new one if it has none."""
        found = request.cookies.get(_cookie(request), "")
        return found if _ID.fullmatch(found) else secrets.token_urlsafe(32)

    def is_open(self, request: Request) -> bool:
        """Return whether a request may read pages."""
        if not self.has_login:
            return True
        session, now_s = self.of(request), trio.current_time()
        newest_s = self._open.pop(session, None)
        if newest_s is None or newest_s <= now_s - IDLE_S:
            return False
        self._open[session] = now_s
        return True

    def open(self) -> str:
        """Open a session; the oldest one is closed if there are too many."""
        session = secrets.token_urlsafe(32)
        self._open[session] = trio.current_time()
        if len(self._open) > _OPEN_MAX:
            del self._open[next(iter(self._open))]
        return session

    def end(self, request: Request) -> None:
        """Close the session of a request."""
        self._open.pop(self.of(request), None)

    def token(self, session: str) -> str:
        """Return the token of a session's forms."""
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def owns(self, request: Request, token: str) -> bool:
        """Return whether ``token`` belongs to the request's session."""
        expected = self.token(self.of(request))
        return hmac.compare_digest(expected.encode(), token.encode())

    def keep(self, request: Request, response: Response, session: str) -> None:
        """Set the cookie that identifies the session in later requests."""
        response.set_cookie(
            _cookie(request),
            session,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )


def _cookie(request: Request) -> str:
    """Return the cookie's name; it has the port, because cookies are per host."""
    return f"doorkeeper-console-{request.url.port or 0}"
