"""The server's side of one SASL exchange, whatever the mechanism."""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol


class SaslRefused(Exception):
    """The client is not who it claims to be, or its message makes no sense.

    ``shown`` goes to the client; None stands for Kafka's general sentence, which is
    the same for every reason. The argument is for the log and holds no secret.
    """

    def __init__(self, why: str, shown: str | None = None) -> None:
        super().__init__(why)
        self.shown = shown


class SaslServer(Protocol):
    """One exchange of messages, which ends with a name or with `SaslRefused`."""

    # The authenticated name, once `is_complete`.
    name: str
    is_complete: bool
    # When the credential ends, by the wall clock; None: never.
    expires_ms: int | None

    def respond(self, message: bytes) -> bytes:
        """Take the client's next message, and return the answer to it."""


def equal(one: bytes, other: bytes) -> bool:
    """Compare two secrets; neither their contents nor their lengths change the time."""
    return hmac.compare_digest(_hashed(one), _hashed(other))


def _hashed(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
