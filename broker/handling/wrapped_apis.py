"""Base of applications that wrap `KafkaApis`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

from broker.handling.kafka_apis import KafkaApis
from broker.requests.request import Request, Response


class WrappedApis(ABC):
    """An `Application` that forwards all but ``serve`` to the handlers of a broker."""

    def __init__(self, wrapped: KafkaApis) -> None:
        self.wrapped = wrapped
        self.apis = wrapped.apis
        self.config_listeners = wrapped.config_listeners
        self.addresses = wrapped.addresses
        self.prepare = wrapped.prepare
        self.withdraw = wrapped.withdraw
        self.leave = wrapped.leave
        self.in_force = wrapped.in_force
        self.authentication = wrapped.authentication
        self.authorizer = wrapped.authorizer
        self.address_rates = wrapped.address_rates
        self.open = wrapped.open
        self.observe = wrapped.observe
        self.run = wrapped.run
        self.next_expiry_ns = wrapped.next_expiry_ns
        self.expire = wrapped.expire
        self.next_upkeep_ns = wrapped.next_upkeep_ns
        self.upkeep = wrapped.upkeep
        self.info = wrapped.info
        self.metrics = wrapped.metrics
        self.close = wrapped.close

    @abstractmethod
    def serve(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Return the response, or the coroutine for it."""

    async def handled(self, request: Request) -> Response:
        """Return the response of the wrapped handlers."""
        served = self.wrapped.serve(request)
        return await served if isinstance(served, Coroutine) else served
