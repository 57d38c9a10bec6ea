"""Workers that serve at once, in the virtual world: demands waited for, not computed.

The broker has one CPU, and in virtual time a slice moves the clock for everybody. Where
Kafka's handler threads run on as many cores, ``server = "seats"`` has a handler wait
for its request's demand at a device of its own, holding its seat, before it answers.
So the whole broker becomes as many servers as it has seats, which theory knows (M/M/c).

A wait is in pieces of the model's length. What comes back from a piece is picked again
by its policy, so a request can lose its seat there and only there; and one that has had
all its demand still needs a seat to answer.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence

import trio

from broker.handling.kafka_apis import KafkaApis
from broker.requests.request import Request, Response

_NS = 1_000_000_000


class OnDevices:
    """Kafka's handlers, each of which first waits for the demand of its request.

    ``demands_ns`` is indexed by correlation id; ``piece_ns`` is the length of a piece,
    0 for one wait. It is an ``Application``, as what it wraps.
    """

    def __init__(
        self, apis: KafkaApis, demands_ns: Sequence[int], *, piece_ns: int
    ) -> None:
        self._apis = apis
        self._demands_ns = demands_ns
        self._piece_ns = piece_ns
        self.apis = apis.apis
        self.config_listeners = apis.config_listeners
        self.addresses = apis.addresses
        self.in_force = apis.in_force
        self.open = apis.open
        self.run = apis.run
        self.next_expiry_ns = apis.next_expiry_ns
        self.expire = apis.expire
        self.next_upkeep_ns = apis.next_upkeep_ns
        self.upkeep = apis.upkeep
        self.metrics = apis.metrics
        self.close = apis.close

    async def serve(self, request: Request) -> Response:
        """Wait for the request's demand, then handle it."""
        number = request.correlation_id
        left_ns = self._demands_ns[number] if number >= 0 else 0
        while left_ns > 0:
            waits_ns = min(left_ns, self._piece_ns) if self._piece_ns else left_ns
            await trio.sleep(waits_ns / _NS)
            left_ns -= waits_ns
        served = self._apis.serve(request)
        return await served if isinstance(served, Coroutine) else served
