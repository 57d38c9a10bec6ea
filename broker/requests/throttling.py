"""Throttle time of a client, and its field in the response (KIP-219).

The response is sent at once and contains the time. The processor does not read the
connection meanwhile, independent of the client's behaviour.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from broker.requests.request import (
    CloseConnection,
    FinalResponse,
    Request,
    Response,
    Throttled,
)

_NS_PER_MS: Final = 1_000_000


def throttle_ms(request: Request, now_ns: int) -> int:
    """Return the request's throttle time in whole milliseconds, rounded up."""
    return -(-max(0, request.task.throttled_until_ns - now_ns) // _NS_PER_MS)


def throttle_time(request: Request, now_ns: int) -> timedelta:
    """Return the request's throttle time for the field of a response."""
    return timedelta(milliseconds=throttle_ms(request, now_ns))


def throttled(request: Request, now_ns: int, response: Response) -> Response:
    """Return ``response``, wrapped in `Throttled` if the client is throttled."""
    left_ns = request.task.throttled_until_ns - now_ns
    if left_ns <= 0 or isinstance(
        response, CloseConnection | FinalResponse | Throttled
    ):
        return response
    return Throttled(pieces=response, throttle_ns=left_ns)
