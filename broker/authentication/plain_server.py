"""PLAIN (RFC 4616): a name and a password, checked against the configured users.

Follows Kafka's ``PlainSaslServer``, with its error messages. A password is compared for
an unknown user, too, so that the time does not reveal which names exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.authentication.sasl_server import SaslRefused, equal

_OTHER_NAME: Final = (
    "Authentication failed: Client requested an authorization id that is different "
    "from username"
)


class PlainServer:
    """One exchange: the client's single message decides."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.name = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the message; the response is empty."""
        tokens = message.decode("utf-8", "replace").split("\0", 4)
        if len(tokens) != 3:
            found = min(len(tokens), 4)
            raise _refused(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {found}"
            )
        authorization_id, name, password = tokens
        if not name:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        # No password is empty, so the stand-in for an unknown user matches none.
        expected = self._passwords.get(name, "")
        if not equal(password.encode(), expected.encode()) or not expected:
            raise _refused("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise _refused(_OTHER_NAME)
        self.name, self.is_complete = name, True
        return b""


def _refused(sentence: str) -> SaslRefused:
    return SaslRefused(sentence, sentence)
