"""Processing of a request: find the handler, decode, handle, encode.

Kafka's ``KafkaApis``. All steps run in turns of the request, so decoding and encoding
are charged to it. A request that cannot be decoded closes the connection, as in Kafka.
A request rejected by admission is decoded and gets an error response
(`broker.handling.error_answer`); a denied request gets one without being decoded. An
exception of a handler ends its request only (`broker.handling.handler_failures`), with
the exception of `BrokenRule`, which is raised further.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from broker.apis.common.api import Api
from broker.apis.common.log_steps import preemptibly
from broker.apis.common.parked_handlers import ConnectionEnded
from broker.cluster.replica_metrics import quota_metrics, replica_metrics
from broker.config import Listener
from broker.groups.metrics import group_lag_metrics, group_metrics
from broker.handling.api_registry import APIS
from broker.handling.error_answer import error_answer, refuse, whole_error
from broker.handling.handler_failures import Failures
from broker.node.background import duty_metrics
from broker.node.broker import Broker
from broker.node.log_dir_metrics import log_dir_metrics
from broker.node.replication_shell import side_by_side
from broker.observation.metric import Metric
from broker.observation.metrics.purgatories import purgatory_metrics
from broker.protocol.errors import ErrorCode, MalformedFrame
from broker.protocol.messages.message import ResponseMessage
from broker.protocol.schemas.message import Versioned
from broker.protocol.wire.codec import (
    ONE_STEP_BYTES,
    decode,
    decode_in_steps,
    encode_in_steps,
)
from broker.protocol.wire.first_error import first_error
from broker.quotas.quota_metrics import client_quota_metrics
from broker.replication.replication_metrics import isr_metrics, replica_fetcher_metrics
from broker.requests.internal_tasks import Submit
from broker.requests.request import CLOSE, Request, Response
from broker.requests.throttling import throttle_time, throttled
from broker.transactions.transaction_metrics import transaction_metrics
from planes.task import BrokenRule

_NS_PER_MS: Final = 1_000_000
_MESSAGES: Final = (ResponseMessage, Versioned)


def _encoded(
    request: Request, answer: ResponseMessage | Versioned, broker: Broker
) -> Generator[None, None, Response]:
    key, version = request.api_key, request.api_version
    request.error_code = yield from first_error(key, version, answer)
    if broker.client_quotas.is_active:
        broker.client_quotas.count_request(request)
    if request.task.throttled_until_ns and isinstance(answer, ResponseMessage):
        answer.throttle_time = throttle_time(request, broker.now_ns())
    return (yield from encode_in_steps(key, version, request.correlation_id, answer))


async def _decoded(api: Api, request: Request) -> object:
    """Return the request's body, decoded in steps if that takes long."""
    key, version, frame = request.api_key, request.api_version, request.frame
    at, bound = request.body_offset, api.items_bound(request)
    if len(frame) - at <= ONE_STEP_BYTES:
        return decode(key, version, frame, at, *bound)
    return await preemptibly(decode_in_steps(key, version, frame, at, *bound))


class KafkaApis:
    """The application behind a `BrokerServer`: a broker and its handlers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._quotas = broker.client_quotas
        self.observe = self._quotas.observe
        self.apis = APIS
        self.failures = Failures()
        self.next_expiry_ns = broker.next_expiry_ns
        self.expire = broker.expire
        self.config_listeners = broker.config_listeners
        self.addresses = broker.hosts.addresses
        self.in_force = broker.in_force
        self.authentication = broker.authentication.of_listener
        self.authorizer = broker.authorizer
        self.address_rates = broker.address_rates

    async def prepare(self) -> None:
        """Read the state of the cluster."""
        await self.broker.coordinator.membership.prepare()

    def open(
        self,
        listeners: Sequence[Listener],
        timer_moved: Callable[[], None],
        submit: Submit,
    ) -> None:
        """Open the broker; clients receive ``listeners``."""
        self.broker.open(listeners, timer_moved, submit)

    def serve(self, request: Request) -> Response | Coroutine[Any, Any, Response]:
        """Return the response if it is available at once, else the coroutine for it.

        ``request`` has passed the checks of `broker.network.intake`.
        """
        api = APIS[request.api_key]
        if request.is_denied:
            return self._denied(api, request)
        handle_at_once = api.handle_at_once
        # `handle` counts quotas, but supports served versions only.
        is_counted = self._quotas.is_active and request.api_version in api.served
        if handle_at_once is not None and not is_counted:
            try:
                response = handle_at_once(request, self.broker)
            except Exception as error:  # ends this request only
                return preemptibly(
                    self.failures.contain(api, request, self.broker, error)
                )
            if response is not None:
                return response
        return self._served(api, request)

    async def _denied(self, api: Api, request: Request) -> Response:
        """Respond to a request whose connection may not claim its role."""
        broker, error = self.broker, ErrorCode.cluster_authorization_failed
        response = await preemptibly(whole_error(api, request, error, broker))
        if request.task.throttled_until_ns:
            return throttled(request, broker.now_ns(), response)
        return response

    async def _served(self, api: Api, request: Request) -> Response:
        broker = self.broker
        response: Response
        body = None
        try:
            body = await _decoded(api, request)
            if not api.keeps_frame:
                request.let_frame_go()
            if request.task.refusal is not None and api.refusable:
                response = await preemptibly(refuse(api, request, body, broker))
            elif denial := api.access.denial(request, body, broker):
                response = await preemptibly(
                    error_answer(api, request, body, denial, broker)
                )
            else:
                answer = await api.handle(request, body, broker)
                if isinstance(answer, _MESSAGES):
                    response = await preemptibly(_encoded(request, answer, broker))
                else:
                    response = answer
        except (MalformedFrame, ConnectionEnded):
            return CLOSE
        except BrokenRule:
            raise
        except Exception as error:  # ends this request only
            response = await preemptibly(
                self.failures.contain(api, request, broker, error, body)
            )
        if request.task.throttled_until_ns:
            return throttled(request, broker.now_ns(), response)
        return response

    async def run(self, billed: AbstractContextManager[object]) -> None:
        """Run membership and replication until cancelled."""
        broker = self.broker
        await side_by_side(
            billed,
            broker.coordinator.membership.run,
            broker.replication.run,
            broker.calls.run,
        )

    async def withdraw(self) -> None:
        """Move leaderships to other brokers."""
        await self.broker.coordinator.membership.withdraw()

    async def leave(self) -> None:
        """Deregister this broker in the cluster."""
        await self.broker.coordinator.membership.leave()

    def next_upkeep_ns(self) -> int | None:
        """Return when the next step of `upkeep` is due."""
        return self.broker.upkeep_duty.due_ns()

    def upkeep(self, now_ns: int) -> None:
        """Do one step of log upkeep."""
        self.broker.upkeep_duty.run(now_ns)

    def info(self) -> Iterator[Metric]:
        """Iterate over the single metric with the ids of cluster and broker."""
        yield Metric(
            name="doorkeeper_broker_info",
            kind="gauge",
            value=1,
            labels={
                "cluster_id": self.broker.cluster_id or "",
                "broker_id": str(self.broker.replicas.local_id),
            },
        )

    def metrics(self) -> Iterator[Metric | None]:
        """Iterate over the metrics of the broker behind the handlers."""
        replicas = self.broker.replicas
        yield from purgatory_metrics(replicas.purgatories)
        yield from replica_metrics(replicas)
        yield from quota_metrics(self.broker.quotas)
        yield from client_quota_metrics(
            self._quotas, self.address_rates, self.broker.now_ns() // _NS_PER_MS
        )
        yield from replica_fetcher_metrics(self.broker.replication.fetchers)
        yield from isr_metrics(self.broker.replication.proposals)
        yield from self.broker.replication.supervisor.metrics()
        yield from self.broker.coordinator.membership.metrics()
        yield from log_dir_metrics(self.broker.logs, self.broker.storage)
        yield from self.broker.flush_times.metrics()
        yield from duty_metrics((*self.broker.duties, self.broker.upkeep_duty))
        yield from group_metrics(self.broker.groups)
        yield from group_lag_metrics(self.broker.groups, replicas.high_watermark)
        yield from transaction_metrics(self.broker.transactions)
        yield from self.broker.calls.supervisor.metrics()
        yield from self.failures.metrics()

    def close(self) -> None:
        """Close the broker's logs."""
        self.broker.close()
