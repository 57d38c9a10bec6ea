"""OAUTHBEARER (RFC 7628): the client's message, and tokens without a signature.

Follows Kafka's ``OAuthBearerClientInitialResponse`` and ``OAuthBearerUnsecuredJws``.
An unsecured token (JWS with ``"alg": "none"``) is no proof of identity; Kafka accepts
such tokens for tests unless a validator is configured.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final, NamedTuple

# The client's response to an error, which ends the exchange.
ABORT: Final = b"\x01"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_INITIAL: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,"
    r"\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([-_~+/.a-zA-Z0-9]+=*)")


class InitialResponse(NamedTuple):
    """The client's message: a token, and the authorization identity."""

    authorization_id: str
    token: str


def read_initial_response(message: bytes) -> InitialResponse:
    """Parse the client's message; raise ValueError."""
    found = _INITIAL.fullmatch(message.decode("latin-1"))
    if found is None:
        raise ValueError("no OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01")[:-1])
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        raise ValueError("an OAUTHBEARER message without a bearer token")
    return InitialResponse(found["authzid"] or "", auth[1])


def write_initial_response(token: str) -> bytes:
    """Return the client's message."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def unsecured_token(claims: dict[str, Any]) -> str:
    """Return a token with ``claims`` and without a signature."""
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def read_unsecured_token(token: str) -> dict[str, Any]:
    """Return the claims of a token without a signature; raise ValueError.

    A token with a signature or an algorithm is rejected, as it is not verified here.
    """
    header, claims, signature = token.split(".")
    if signature or _object(header).get("alg") != "none":
        raise ValueError("a token without a signature")
    return _object(claims)


def _part(content: dict[str, Any]) -> str:
    written = json.dumps(content, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(written).rstrip(b"=").decode()


def _object(part: str) -> dict[str, Any]:
    padded = part + "=" * (-len(part) % 4)
    found = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    if not isinstance(found, dict):
        raise ValueError("a JSON object")
    return found
