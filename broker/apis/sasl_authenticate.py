"""SaslAuthenticate (36): a step of authentication.

Versions: 0-2.

Behaviour:
- On a SASL listener, after SaslHandshake, the token goes to the mechanism's server. At
  the end of the exchange the connection has a principal.
- Failure is SASL_AUTHENTICATION_FAILED in Kafka's words, after a delay
  (`connection.failed.authentication.delay.ms`), and then the connection is closed. The
  sentence is the same for an unknown user and for a wrong password.
- Elsewhere: ILLEGAL_SASL_STATE, and the connection stays open.
- Never refused by admission: clients take any error for wrong credentials.

Version notes: v1 tells the life of a session (KIP-368), v2 is flexible. A token after
SaslHandshake v0 comes without a header and is answered without one.

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
    """Take a token."""
    authenticator = request.peer.authenticator
    if authenticator is None or not authenticator.expects_token:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after authentication",
            auth_bytes=b"",
        )
    # Before the state changes with a failure of authentication anew.
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
    """Take a token that came without a header."""
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
    """Return the answer to a token; raise `SaslRefused`."""
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
