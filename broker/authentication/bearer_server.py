"""OAUTHBEARER on the server's side (RFC 7628): a token, and its validation.

Follows Kafka's ``OAuthBearerSaslServer``. An invalid token is answered with an error in
JSON; the exchange fails with the client's next message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.authentication.sasl_server import SaslRefused
from broker.authentication.tokens import ValidateToken
from broker.protocol.sasl.bearer import ABORT, read_initial_response

_INVALID: Final = '{"status":"invalid_token"}'


class BearerServer:
    """One exchange; ``now_ms`` is the wall clock."""

    def __init__(self, validate: ValidateToken, now_ms: Callable[[], int]) -> None:
        self._validate = validate
        self._now_ms = now_ms
        self._why = ""
        self.name = ""
        self.is_complete = False
        self.expires_ms: int | None = None

    def respond(self, message: bytes) -> bytes:
        """Check the token of a message, or end an exchange that has failed."""
        if self._why and message == ABORT:
            raise SaslRefused(self._why, _INVALID)
        try:
            initial = read_initial_response(message)
        except ValueError as error:
            raise SaslRefused(str(error)) from None
        try:
            token = self._validate(initial.token, self._now_ms())
        except (ValueError, RecursionError) as error:
            # Texts of other libraries may quote the token.
            self._why = str(error) if type(error) is ValueError else "malformed token"
            return _INVALID.encode()
        if initial.authorization_id not in ("", token.name):
            raise SaslRefused(
                "the authorization id differs",
                "Authentication failed: Client requested an authorization id "
                f"({initial.authorization_id}) that is different from the token's "
                f"principal name ({token.name})",
            )
        self.name, self.is_complete = token.name, True
        self.expires_ms = token.expires_ms
        return b""
