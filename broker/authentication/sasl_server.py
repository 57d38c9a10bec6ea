"""The server's side of one SASL exchange, for any mechanism."""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol


class SaslRefused(Exception):
    """The client's credentials or its message are invalid.

    ``shown`` is sent to the client; None stands for Kafka's general message, which is
    the same for every reason. ``why`` is for the log and contains no secret.
    """

    def __init__(self, why: str, shown: str | None = None) -> None:
        super().__init__(why)
        self.shown = shown


class SaslServer(Protocol):
    """One exchange of messages, which ends with a name or with `SaslRefused`."""

    # The authenticated name, once `is_complete`.
    name: str
    is_complete: bool
    # Expiry of the credential, by the wall clock; None: never.
    expires_ms: int | None

    def respond(self, message: bytes) -> bytes:
        """Process the client's next message, and return the response."""


def equal(one: bytes, other: bytes) -> bool:
    """Compare two secrets in a time that depends on neither content nor length."""
    return hmac.compare_digest(_hashed(one), _hashed(other))


def _hashed(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
