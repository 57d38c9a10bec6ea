"""Sessions of browsers, and the tokens of forms that belong to them.

A session is a random name in a cookie. A form carries its token, an HMAC of that name,
so another site, which cannot read pages, can send no form (CSRF). SameSite keeps the
cookie from other sites' requests besides, and `guard` compares the Origin.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

_ID: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class Sessions:
    """The sessions of one process; they end with it."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def of(self, request: Request) -> str:
        """Return the session of a request, a new one if it has none."""
        found = request.cookies.get(_cookie(request), "")
        return found if _ID.fullmatch(found) else secrets.token_urlsafe(32)

    def token(self, session: str) -> str:
        """Return the token of a session's forms."""
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def owns(self, request: Request, token: str) -> bool:
        """Return whether a form with ``token`` is of the request's session."""
        expected = self.token(self.of(request))
        return hmac.compare_digest(expected.encode(), token.encode())

    def keep(self, request: Request, response: Response, session: str) -> None:
        """Set the cookie, which the browser sends with its next requests."""
        response.set_cookie(
            _cookie(request),
            session,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )


def _cookie(request: Request) -> str:
    """Return the cookie's name: browsers share cookies among a host's ports."""
    return f"doorkeeper-console-{request.url.port or 0}"
