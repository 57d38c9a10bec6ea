"""Routing of the administration client's requests: one broker, any, the controller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

import trio

from broker.client.client_config import ClientConfig, parse_bootstrap
from broker.client.network_client import Address, Connect, NetworkClient
from broker.client.retriable_errors import disconnected
from broker.client.versions import SPOKEN_BY_ADMINS
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.message import AnyRequest, AnyResponse
from broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

# Errors after which another broker is tried.
_AWAY: Final = (ErrorCode.network_exception, ErrorCode.request_timed_out)
# Pauses before a request is sent to the next controller.
_CONTROLLER_PAUSES_S: Final = (0.1, 0.4, 1.0)

R = TypeVar("R", bound=AnyResponse)


class BrokerDescription(NamedTuple):
    """A broker. A fenced broker is registered with the controller but not alive."""

    id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False


class AdminRouting:
    """Sends requests to one broker, to any, or to the controller."""

    def __init__(
        self, config: ClientConfig, bootstrap: str, connect: Connect, rng: random.Random
    ) -> None:
        self.client = NetworkClient(config, connect, rng, SPOKEN_BY_ADMINS)
        self._bootstrap = [Address(*each) for each in parse_bootstrap(bootstrap)]
        self._brokers: dict[int, Address] = {}
        # The broker that answered last, which is tried first.
        self._last: Address | None = None

    async def _metadata(self, names: list[str] | None) -> MetadataResponse:
        topics = (
            None if names is None else [MetadataRequestTopic(name=it) for it in names]
        )
        answer = await self._anywhere(
            MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        )
        self._take(
            BrokerDescription(it.node_id, it.host, it.port, it.rack)
            for it in answer.brokers
        )
        return answer

    def _take(self, brokers: Iterable[BrokerDescription]) -> None:
        self._brokers = {
            it.id: Address(it.host, it.port) for it in brokers if not it.is_fenced
        }

    async def _at(self, broker_id: int, request: AnyRequest[R]) -> R:
        """Send a request to a broker, after a lookup of its address if necessary."""
        if broker_id not in self._brokers:
            await self._metadata([])
        address = self._brokers.get(broker_id)
        if address is None:
            raise disconnected(f"broker {broker_id} is not alive")
        return await self.client.call(address, request)

    async def _anywhere(self, request: AnyRequest[R]) -> R:
        """Send a request to one broker after the other until one answers."""
        last = [] if self._last is None else [self._last]
        failure = disconnected("there is no broker to ask")
        # Without duplicates, since a broker is often a bootstrap server, too.
        for address in dict.fromkeys(
            [*last, *self._brokers.values(), *self._bootstrap]
        ):
            try:
                answer = await self.client.call(address, request)
            except KafkaError as error:
                if error.code not in _AWAY:
                    raise
                failure = error
            else:
                self._last = address
                return answer
        raise failure

    async def _of_controller(
        self, request: AnyRequest[R], codes: Callable[[R], Iterable[ErrorCode]]
    ) -> R:
        """Send a request to the controller, and to the next one if it has moved.

        ``codes`` returns the error codes of a response. Under KRaft any broker forwards
        the request, and Metadata has one of them as the controller.
        """
        for pause_s in (*_CONTROLLER_PAUSES_S, None):
            found = await self._metadata([])
            if found.controller_id >= 0:
                answer = await self._at(found.controller_id, request)
                if ErrorCode.not_controller not in codes(answer) or pause_s is None:
                    return answer
            if pause_s is not None:
                await trio.sleep(pause_s)
        raise KafkaError(ErrorCode.not_controller, "the cluster has no controller")
