"""SaslAuthenticate (36): a step of authentication.

Versions: 0-2.

Behaviour:
- On a SASL listener, after SaslHandshake, the mechanism's server processes the token.
  At the end of the exchange the connection has a principal.
- A failure is SASL_AUTHENTICATION_FAILED with Kafka's message, after a delay
  (`connection.failed.authentication.delay.ms`); the connection is then closed. The
  message is the same for an unknown user and for a wrong password.
- Otherwise the error is ILLEGAL_SASL_STATE, and the connection stays open.
- Admission never refuses this API, since clients interpret any error as wrong
  credentials.

Version notes: v1 returns the lifetime of a session (KIP-368), v2 is flexible. A token
after SaslHandshake v0 has no header, and neither has its response.

Left out: GSSAPI, and delegation tokens.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Final

from broker.apis.common.access import PUBLIC
from broker.apis.common.api import Answer, Api
from broker.apis.common.authentication import final_answer, log_failure
from broker.authentication.authenticator import SaslAuthenticator
from broker.authentication.sasl_server import SaslRefused
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import FinalResponse, Request, Response


async def handle(
    request: Request, body: SaslAuthenticateRequest, broker: Broker
) -> Answer:
    """Process a token."""
    authenticator = request.peer.authenticator
    if authenticator is None or not authenticator.expects_token:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after authentication",
            auth_bytes=b"",
        )
    # Computed first, since a failed re-authentication changes the state.
    failure = authenticator.failure()
    try:
        answer = _respond(request, authenticator, body.auth_bytes)
    except SaslRefused as refused:
        return final_answer(
            request,
            SaslAuthenticateResponse(
                error_code=ErrorCode.sasl_authentication_failed,
                error_message=refused.shown or failure,
                auth_bytes=b"",
            ),
            str(refused),
        )
    return SaslAuthenticateResponse(
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=answer,
        session_lifetime=timedelta(milliseconds=authenticator.session_lifetime_ms()),
    )


def handle_at_once(request: Request, broker: Broker) -> Response | None:
    """Process a token without a header."""
    authenticator = request.peer.authenticator
    if authenticator is None or not authenticator.expects_bare_token:
        return None
    try:
        answer = _respond(request, authenticator, request.frame)
    except SaslRefused as refused:
        request.error_code = int(ErrorCode.sasl_authentication_failed)
        log_failure(request, authenticator, str(refused))
        delay_ns = authenticator.settings.failure_delay_ns
        return FinalResponse(pieces=(), delay_ns=delay_ns)
    return (struct.pack(">i", len(answer)) + answer,)


def _respond(request: Request, authenticator: SaslAuthenticator, token: bytes) -> bytes:
    """Return the response to a token; raise `SaslRefused`."""
    answer = authenticator.respond(token)
    if authenticator.principal is not None:
        request.peer.authenticated(authenticator.principal)
    return answer


API: Final = Api(
    key=ApiKey.SASL_AUTHENTICATE,
    versions=(0, 2),
    request_class=METADATA,
    handle=handle,
    handle_at_once=handle_at_once,
    refusable=False,
    access=PUBLIC,
)
