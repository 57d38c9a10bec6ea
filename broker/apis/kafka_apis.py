"""From a request to its response: find the handler, decode, handle, encode.

Kafka's ``KafkaApis``. All of it runs inside the handler's coroutine, so that decoding
and encoding are charged to the request. What cannot be decoded, and a version that is
not served, closes the connection, as in Kafka; only ApiVersions has an answer for a
version that it does not know (KIP-511). What admission has turned away is decoded and
refused (`broker.apis.refusal`).
"""

from __future__ import annotations

from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from broker.apis import (
    alter_configs,
    alter_partition_reassignments,
    api_versions,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    stop_replica,
    sync_group,
    update_metadata,
)
from broker.apis.answer import first_error
from broker.apis.refusal import may_be_refused, refuse
from broker.apis.throttling import throttle_time, throttled
from broker.cluster.broker_state import Broker
from broker.cluster.metrics import replica_metrics
from broker.config import Listener
from broker.errors import MalformedFrame
from broker.groups.metrics import group_metrics
from broker.metrics.metric import Metric
from broker.metrics.purgatories import purgatory_metrics
from broker.request import CLOSE, Request, Response
from broker.wire.api_keys import SUPPORTED, ApiKey, VersionRange
from broker.wire.codec import Entity, decode, encode

Handle = Callable[[Request, Entity, Broker], Awaitable[Any]]

HANDLERS: Final[Mapping[int, Handle]] = MappingProxyType(
    {
        ApiKey.LIST_OFFSETS: list_offsets.handle,
        ApiKey.METADATA: metadata.handle,
        ApiKey.LEADER_AND_ISR: leader_and_isr.handle,
        ApiKey.STOP_REPLICA: stop_replica.handle,
        ApiKey.UPDATE_METADATA: update_metadata.handle,
        ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown.handle,
        ApiKey.OFFSET_COMMIT: offset_commit.handle,
        ApiKey.OFFSET_FETCH: offset_fetch.handle,
        ApiKey.FIND_COORDINATOR: find_coordinator.handle,
        ApiKey.JOIN_GROUP: join_group.handle,
        ApiKey.HEARTBEAT: heartbeat.handle,
        ApiKey.LEAVE_GROUP: leave_group.handle,
        ApiKey.SYNC_GROUP: sync_group.handle,
        ApiKey.DESCRIBE_GROUPS: describe_groups.handle,
        ApiKey.LIST_GROUPS: list_groups.handle,
        ApiKey.CREATE_TOPICS: create_topics.handle,
        ApiKey.DELETE_TOPICS: delete_topics.handle,
        ApiKey.INIT_PRODUCER_ID: init_producer_id.handle,
        ApiKey.DELETE_GROUPS: delete_groups.handle,
        ApiKey.ALTER_CONFIGS: alter_configs.handle,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments.handle,
        ApiKey.CREATE_PARTITIONS: create_partitions.handle,
        ApiKey.DELETE_RECORDS: delete_records.handle,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster.handle,
        ApiKey.DESCRIBE_CONFIGS: describe_configs.handle,
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
        ApiKey.ELECT_LEADERS: elect_leaders.handle,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.handle,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.handle,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
        ApiKey.OFFSET_DELETE: offset_delete.handle,
    }
)
# These encode their own answers: the hot ones, whose records are never copied.
ENCODING_HANDLERS: Final[Mapping[int, Handle]] = MappingProxyType(
    {ApiKey.PRODUCE: produce.serve, ApiKey.FETCH: fetch.serve}
)
SERVED: Final = frozenset({*HANDLERS, *ENCODING_HANDLERS, ApiKey.API_VERSIONS})
_VERSIONS: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {key: SUPPORTED[ApiKey(key)] for key in SERVED}
)
_PRODUCE: Final = int(ApiKey.PRODUCE)
_PRODUCE_LAST: Final = _VERSIONS[_PRODUCE].max
_PRODUCE_FIRST: Final = _VERSIONS[_PRODUCE].implemented_min


def begin(request: Request, broker: Broker) -> Response | Coroutine[Any, Any, Response]:
    """Return the response, if it can be had without waiting, or who will make it."""
    if (
        request.api_key == _PRODUCE
        and _PRODUCE_FIRST <= request.api_version <= _PRODUCE_LAST
    ):
        response = produce.serve_at_once(request, broker)
        if response is not None:
            return response
    return serve(request, broker)


async def serve(request: Request, broker: Broker) -> Response:
    """Return the response of ``request``; `CLOSE` if it has none to be given."""
    key, version = request.api_key, request.api_version
    served = _VERSIONS.get(key)
    if served is None or not served.serves(version):
        if key == ApiKey.API_VERSIONS:
            return api_versions.unsupported(request)
        return CLOSE
    try:
        body = decode(key, version, request.frame, request.body_offset)
    except MalformedFrame:
        return CLOSE
    if request.refusal is not None and may_be_refused(key):
        told = throttle_time(request, broker.now_ns())
        return throttled(request, broker.now_ns(), refuse(request, body, told, broker))
    response: Response
    encoding_handler = ENCODING_HANDLERS.get(key)
    if encoding_handler is not None:
        response = await encoding_handler(request, body, broker)
    else:
        if key == ApiKey.API_VERSIONS:
            answer = api_versions.listed(request, body, SERVED)
        else:
            answer = await HANDLERS[key](request, body, broker)
        request.error_code = first_error(answer)
        if request.throttled_until_ns:
            answer.throttle_time = throttle_time(request, broker.now_ns())
        response = (encode(key, version, request.correlation_id, answer),)
    if request.throttled_until_ns:
        return throttled(request, broker.now_ns(), response)
    return response


class KafkaApis:
    """The application behind a `BrokerServer`: a broker and its handlers."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.serve = partial(begin, broker=broker)
        self.next_expiry_ns = broker.next_expiry_ns
        self.expire = broker.expire
        self.config_listeners = broker.config_listeners

    def open(
        self, listeners: Sequence[Listener], timer_moved: Callable[[], None]
    ) -> None:
        """Open the broker; clients are told of ``listeners``."""
        self.broker.open(listeners, timer_moved)

    def metrics(self) -> Iterable[Metric]:
        """Return the metrics of the broker behind the handlers."""
        replicas = self.broker.replicas
        purgatories = (replicas.produce_purgatory, replicas.fetch_purgatory)
        return (
            *purgatory_metrics(purgatories),
            *replica_metrics(replicas),
            *group_metrics(self.broker.groups.statistics()),
        )

    def close(self) -> None:
        """Close the broker's logs."""
        self.broker.close()
