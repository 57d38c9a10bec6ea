"""A broker's handlers, with a record of received requests and a table of faults."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final, cast

from broker.apis.common.log_steps import preemptibly
from broker.apis.common.parked_handlers import ConnectionEnded, parked_for_client
from broker.apis.metadata import API as METADATA
from broker.handling.api_registry import APIS
from broker.handling.error_answer import error_answer
from broker.handling.kafka_apis import KafkaApis
from broker.handling.wrapped_apis import WrappedApis
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, MalformedFrame
from broker.protocol.messages.fetch import FetchRequest
from broker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from broker.protocol.wire.codec import decode
from broker.requests.request import CLOSE, Request, Response
from doorkeeper.testing.received import ReceivedRequest, topics_named
from doorkeeper.testing.request_faults import FaultRule, FaultTable
from planes.slices import Wake

# The client id of requests that the test broker's own methods send.
OWN_CLIENT_ID: Final = "doorkeeper-testing"

WakeLater = Callable[[float, Wake], None]


def _in_rows(
    request: Request, body: MetadataRequest, answer: MetadataResponse, broker: Broker
) -> None:
    """Give the error to the topics only: librdkafka retries one of the whole answer."""
    METADATA.error_answer.complete(request, body, answer, broker)
    if body.topics:
        answer.error_code = ErrorCode.none


_METADATA: Final = replace(
    METADATA, error_answer=replace(METADATA.error_answer, complete=_in_rows)
)


class ObservedApis(WrappedApis):
    """The application of a test broker.

    Requests are appended to ``received``. ``wake_later`` calls a function after a
    number of seconds.
    """

    def __init__(
        self,
        apis: KafkaApis,
        received: deque[ReceivedRequest],
        faults: FaultTable,
        wake_later: WakeLater,
    ) -> None:
        super().__init__(apis)
        self._broker = apis.broker
        self._received = received
        self._faults = faults
        self._wake_later = wake_later
        # The topics of a connection's fetch session.
        self._fetched: dict[int, dict[str, None]] = {}

    def serve(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Record a request, then apply its faults or its handler."""
        if request.client_id == OWN_CLIENT_ID:
            return self.wrapped.serve(request)
        frame, at = request.frame, request.body_offset
        key, version = ApiKey(request.api_key), request.api_version
        try:
            body: object = decode(key, version, frame, at)
        except MalformedFrame:
            return self.wrapped.serve(request)
        topics = self._topics(request, body)
        self._received.append(
            ReceivedRequest(key, version, request.client_id, topics, frame, at)
        )
        met = self._faults.met_by(key, request.client_id, topics)
        if not met:
            return self.wrapped.serve(request)
        return self._with_faults(request, body, met)

    async def _with_faults(
        self, request: Request, body: object, met: list[FaultRule]
    ) -> Response:
        try:
            for rule in met:
                if rule.action == "delay":
                    await self._delay(request, rule.seconds)
                else:
                    return await self._end(request, body, rule)
        except ConnectionEnded:
            return CLOSE
        return await self.handled(request)

    async def _end(self, request: Request, body: object, rule: FaultRule) -> Response:
        """End a request by a fault."""
        if rule.action == "fail":
            api = APIS[request.api_key]
            if api is METADATA:
                api = _METADATA
            answer = error_answer(api, request, body, rule.error, self._broker)
            return await preemptibly(answer)
        if rule.handled:
            await self.handled(request)
        if rule.action == "drop":
            # Only the end of the connection wakes this request.
            await parked_for_client(request, lambda wake: True)
        return CLOSE

    async def _delay(self, request: Request, seconds: float) -> None:
        """Wait without a seat, so that other connections are served meanwhile."""

        def register(wake: Wake) -> bool:
            self._wake_later(seconds, wake)
            return True

        await parked_for_client(request, register)

    def _topics(self, request: Request, body: object) -> tuple[str, ...]:
        """Return the topics of a request, each once."""
        name_of = self._broker.metadata_cache.name
        named = (
            it if isinstance(it, str) else name_of(it) for it in topics_named(body)
        )
        found = dict.fromkeys(it for it in named if it is not None)
        if request.api_key == ApiKey.FETCH:
            in_session = self._fetched.setdefault(request.peer.connection_id, {})
            # An epoch of 0 or below starts a new session, or is a fetch without one.
            if cast(FetchRequest, body).session_epoch <= 0:
                in_session.clear()
            in_session.update(found)
            found = in_session
        return tuple(found)
