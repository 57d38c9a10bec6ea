"""Independent servers in the virtual world: a request waits for its demand at a device.

The broker has one CPU, and in virtual time a slice moves the clock for all. ``server =
"seats"`` models Kafka's handler threads on as many cores. A handler then waits for its
request's demand at its own device, with its seat, before it answers. The whole broker
is equivalent to as many servers as it has seats, which theory covers (M/M/c).

A wait is divided into pieces of the model's length. After a piece the policy picks the
request again, so it can lose its seat only then. A request whose demand is complete
still needs a seat to answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from broker.handling.kafka_apis import KafkaApis
from broker.handling.wrapped_apis import WrappedApis
from broker.requests.request import Request, Response

_NS = 1_000_000_000
Needs: TypeAlias = Callable[[Request], int]
Billed: TypeAlias = Callable[[Request, int], None]
Wait: TypeAlias = Callable[[Request, int], Awaitable[None]]


class OnDevices(WrappedApis):
    """Kafka's handlers, each preceded by a wait for the demand of its request.

    ``needs_ns`` returns a request's demand, at its first turn; ``wait`` waits for that
    time.
    """

    def __init__(self, apis: KafkaApis, needs_ns: Needs, *, wait: Wait) -> None:
        super().__init__(apis)
        self._needs_ns = needs_ns
        self._wait = wait

    async def serve(self, request: Request) -> Response:
        """Wait for the request's demand, then handle it."""
        needs_ns = self._needs_ns(request)
        if needs_ns:
            await self._wait(request, needs_ns)
        return await self.handled(request)


def in_pieces(piece_ns: int, billed: Billed | None = None) -> Wait:
    """Return a wait at a separate device in pieces of this length; 0 for one piece.

    ``billed`` is called after each piece, when the request has its turn again.
    """

    async def wait(request: Request, left_ns: int) -> None:
        while left_ns > 0:
            waits_ns = min(left_ns, piece_ns) if piece_ns else left_ns
            await trio.sleep(waits_ns / _NS)
            if billed is not None:
                billed(request, waits_ns)
            left_ns -= waits_ns

    return wait
