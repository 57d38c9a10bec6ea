"""Time for which a client is throttled, and its field in the response (KIP-219).

The response goes out at once with that time; the processor does not read the connection
meanwhile, whether or not the client honours it.
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
    """Return the same as the field of an answer."""
    return timedelta(milliseconds=throttle_ms(request, now_ns))


def throttled(request: Request, now_ns: int, response: Response) -> Response:
    """Return ``response`` for a processor that is to hold the client back, if so."""
    left_ns = request.task.throttled_until_ns - now_ns
    if left_ns <= 0 or isinstance(
        response, CloseConnection | FinalResponse | Throttled
    ):
        return response
    return Throttled(pieces=response, throttle_ns=left_ns)
