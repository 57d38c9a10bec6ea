"""The end of a failed authentication: its response, its log line, its delay."""

from __future__ import annotations

from logging import getLogger

from broker.authentication.authenticator import SaslAuthenticator
from broker.observation.logs import fields
from broker.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from broker.protocol.messages.sasl_handshake import SaslHandshakeResponse
from broker.protocol.wire.codec import encode
from broker.requests.request import FinalResponse, Request

logger = getLogger(__name__)


def final_answer(
    request: Request,
    answer: SaslHandshakeResponse | SaslAuthenticateResponse,
    why: str,
) -> FinalResponse:
    """Return the last response of a connection; ``why`` is for the log only."""
    authenticator = request.peer.authenticator
    assert authenticator is not None
    request.error_code = int(answer.error_code)
    log_failure(request, authenticator, why)
    content = encode(
        request.api_key, request.api_version, request.correlation_id, answer
    )
    return FinalResponse(
        pieces=(content,), delay_ns=authenticator.settings.failure_delay_ns
    )


def log_failure(request: Request, authenticator: SaslAuthenticator, why: str) -> None:
    """Log a failure without the user's name, which may be a mistyped password."""
    logger.warning(
        "authentication failed",
        extra=fields(
            peer=request.peer.host,
            listener=request.peer.listener,
            mechanism=authenticator.mechanism or "none",
            why=why,
        ),
    )
