"""SaslHandshake (17): select a mechanism of authentication.

Versions: 0-1.

Behaviour:
- On a SASL listener the mechanism is accepted, or refused with
  UNSUPPORTED_SASL_MECHANISM and the list of enabled mechanisms. The connection is then
  closed after a delay (`connection.failed.authentication.delay.ms`).
- On an authenticated connection whose session has a lifetime, the client authenticates
  again (KIP-368), at most once a second, with the same mechanism.
- Otherwise the error is ILLEGAL_SASL_STATE. The connection stays open unless an
  exchange is in progress.
- Admission never refuses this API, since clients interpret any error as a wrong
  configuration.

Version notes: after v0 tokens have no headers; after v1 they are sent by
SaslAuthenticate (KIP-152).

Left out: GSSAPI, and delegation tokens.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import PUBLIC
from broker.apis.common.api import Answer, Api
from broker.apis.common.authentication import final_answer
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request


async def handle(
    request: Request, body: SaslHandshakeRequest, broker: Broker
) -> Answer:
    """Select the mechanism."""
    authenticator = request.peer.authenticator
    if authenticator is None or not authenticator.expects_handshake:
        answer = SaslHandshakeResponse(
            error_code=ErrorCode.illegal_sasl_state, mechanisms=()
        )
        if authenticator is None or not authenticator.expects_token:
            return answer
        authenticator.fail()
        return final_answer(request, answer, "a handshake amid an exchange")
    enabled = tuple(authenticator.settings.mechanisms)
    if authenticator.choose(body.mechanism, request.api_version):
        return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=enabled)
    answer = SaslHandshakeResponse(
        error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=enabled
    )
    return final_answer(request, answer, "the mechanism is not enabled")


API: Final = Api(
    key=ApiKey.SASL_HANDSHAKE,
    versions=(0, 1),
    request_class=METADATA,
    handle=handle,
    refusable=False,
    access=PUBLIC,
)
