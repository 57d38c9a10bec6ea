"""Metadata (3): describe brokers, topics, and the leaders of partitions.

Versions: 0-13.

Behaviour:
- The source is the metadata cache, for the listener of the request. A leader that is
  not reachable on this listener is LEADER_NOT_AVAILABLE (LISTENER_NOT_FOUND from v6 on,
  if the broker is alive on another listener), with leader -1.
- The creation of an unknown topic is started, without waiting, if
  ``auto.create.topics.enable`` and the request allow it. As in Kafka, the response has
  no partitions and UNKNOWN_TOPIC_OR_PARTITION, or LEADER_NOT_AVAILABLE if this is the
  controller under ZooKeeper; the next response has the topic.
- Before the first update from a controller, the response has neither brokers nor
  topics. Clients discard such a response and retry, possibly on another broker. Kafka's
  brokers describe an empty cluster after a restart, and missing topics fail producers
  on librdkafka.
- A request can be preempted between topics; the whole response is of one time.

Version notes:
- v0: an empty list of topics means all; from v1 on null means all and empty means none.
  v1 adds the controller and racks, v2 the cluster id, v4 allow_auto_topic_creation, v5
  offline replicas, v7 leader epochs (KIP-320), v8-v10 authorized operations (KIP-430),
  v9 is flexible, v10 returns topic ids, v12 accepts them (KIP-516), v13 has a top-level
  error (KIP-1102), by which Kafka 4 makes clients use their bootstrap servers again.

Left out: nothing.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from broker.apis.common.access import (
    Check,
    allowed_on_cluster,
    allowed_on_topic,
    check_topic,
    cluster_operations,
    in_handler,
    operations,
)
from broker.apis.common.answer import (
    NO_ID,
    NOT_ASKED,
)
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.partition_row import partition_row
from broker.apis.common.topic_creation import auto_create
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.cluster_topics import INTERNAL_TOPICS, check_name
from broker.cluster.metadata_cache import NO_CONTROLLER, MetadataView, TopicMetadata
from broker.config import AUTO_CREATE_TOPICS_ENABLE
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.requests.classifier import METADATA
from broker.requests.request import Request
from planes.slices import in_steps, preempt

# Partitions described per step: about 0.3 ms.
_PAGE: Final = 100


async def handle(
    request: Request, body: MetadataRequest, broker: Broker
) -> MetadataResponse:
    """Describe all topics, or the requested ones."""
    cache = broker.metadata_cache.view()
    if cache.controller_id == NO_CONTROLLER:
        return MetadataResponse(
            brokers=(),
            cluster_id=broker.cluster_id,
            controller_id=cache.controller_id,
            topics=(),
        )
    topics: list[MetadataResponseTopic] = []
    if body.topics is None or (request.api_version == 0 and not body.topics):
        for known in cache.topics():
            if allowed_on_topic(
                request, broker, AclOperation.DESCRIBE, known.name, logs_denial=False
            ):
                topics.append(await _described(request, body, known, cache, broker))
            await preempt()
    else:
        # A duplicate topic has one row, as in Kafka.
        distinct: dict[tuple[str | None, UUID | None], MetadataRequestTopic] = {}
        async for wanted in in_steps(body.topics):
            distinct.setdefault((wanted.name, wanted.topic_id), wanted)
        for wanted in distinct.values():
            topics.append(await _wanted(request, body, wanted, cache, broker))
            await preempt()
    is_requested = body.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=_brokers(request, cache),
        cluster_id=broker.cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            cluster_operations(request, broker) if is_requested else NOT_ASKED
        ),
    )


def _brokers(request: Request, cache: MetadataView) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(
            node_id=each.broker.id,
            host=each.host,
            port=each.port,
            rack=each.broker.rack,
        )
        for each in cache.on_listener(request.peer.listener)
    ]


async def _wanted(
    request: Request,
    body: MetadataRequest,
    wanted: MetadataRequestTopic,
    cache: MetadataView,
    broker: Broker,
) -> MetadataResponseTopic:
    """Return the row of one requested topic, or of its error."""
    name = wanted.name
    topic_id = wanted.topic_id or NO_ID
    try:
        if topic_id == NO_ID:
            topic = await _by_name(request, name, body, cache, broker)
        elif request.api_version < 12:
            raise KafkaError(ErrorCode.invalid_request, "topic ids before version 12")
        else:
            topic = _by_id(request, topic_id, cache, broker)
    except KafkaError as error:
        # The name is not nullable in v10 and v11.
        known_name = name if name is not None or request.api_version >= 12 else ""
        is_denied = error.code is ErrorCode.topic_authorization_failed
        reported_name = None if is_denied else known_name
        found = _operations(request, body, reported_name, broker)
        return _row(known_name, topic_id, error.code, [], found)
    return await _described(request, body, topic, cache, broker)


def _by_id(
    request: Request, topic_id: UUID, cache: MetadataView, broker: Broker
) -> TopicMetadata:
    name = cache.name(topic_id)
    topic = None if name is None else cache.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.unknown_topic_id)
    check_topic(request, broker, AclOperation.DESCRIBE, topic.name)
    return topic


async def _by_name(
    request: Request,
    name: str | None,
    body: MetadataRequest,
    cache: MetadataView,
    broker: Broker,
) -> TopicMetadata:
    if name is None:
        raise KafkaError(ErrorCode.invalid_request, "neither a name nor an id")
    # Checked before the lookup, which would reveal whether the topic exists.
    check_topic(request, broker, AclOperation.DESCRIBE, name)
    topic = cache.topic(name)
    if topic is not None:
        return topic
    creates = (
        body.allow_auto_topic_creation and broker.config[AUTO_CREATE_TOPICS_ENABLE]
    )
    if creates and not allowed_on_cluster(
        request, broker, AclOperation.CREATE, logs_denial=False
    ):
        check_topic(request, broker, AclOperation.CREATE, name)
    check_name(name)
    if not creates:
        raise KafkaError(ErrorCode.unknown_topic_or_partition)
    try:
        error = await auto_create(request, name, broker)
    except KafkaError as refused:
        if refused.code is not ErrorCode.topic_already_exists:
            raise
        # Another request is creating or deleting the topic: the client retries.
        error = KafkaError(ErrorCode.leader_not_available)
    raise error


async def _described(
    request: Request,
    body: MetadataRequest,
    topic: TopicMetadata,
    cache: MetadataView,
    broker: Broker,
) -> MetadataResponseTopic:
    listener, version = request.peer.listener, request.api_version
    rows = []
    for number, index in enumerate(sorted(topic.partitions), 1):
        state = topic.partitions[index]
        rows.append(partition_row(state, listener, version, cache))
        if not number % _PAGE:
            await preempt()
    found = _operations(request, body, topic.name, broker)
    topic_id = topic.topic_id or NO_ID
    return _row(topic.name, topic_id, ErrorCode.none, rows, found)


def _operations(
    request: Request, body: MetadataRequest, name: str | None, broker: Broker
) -> int:
    """Return the allowed operations on a topic, known or not, if requested."""
    if not body.include_topic_authorized_operations or name is None:
        return NOT_ASKED
    return operations(request, broker, ResourceType.TOPIC, name)


def _row(
    name: str | None,
    topic_id: UUID,
    error: ErrorCode,
    partitions: list[MetadataResponsePartition],
    found_operations: int,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        # Hides the property of a topic that the client may not describe.
        is_internal=name in INTERNAL_TOPICS
        and error is not ErrorCode.topic_authorization_failed,
        partitions=partitions,
        topic_authorized_operations=found_operations,
    )


def _add_cluster(
    request: Request, body: MetadataRequest, answer: MetadataResponse, broker: Broker
) -> None:
    """List the brokers even if topics fail: librdkafka drops brokers left out.

    A request without topics has no rows for an error, so its response stays empty.
    Clients discard a response without brokers and topics, and retry; with brokers it
    would mean that there are no topics.
    """
    if body.topics:
        cache = broker.metadata_cache
        answer.brokers = _brokers(request, cache)
        answer.cluster_id = broker.cluster_id
        answer.controller_id = cache.controller_id


API: Final = Api(
    key=ApiKey.METADATA,
    versions=(0, 13),
    request_class=METADATA,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
        Check(AclOperation.CREATE, ResourceType.TOPIC),
        Check(AclOperation.CREATE, ResourceType.CLUSTER),
        Check(AclOperation.DESCRIBE, ResourceType.CLUSTER),
    ),
    error_answer=ErrorAnswer(
        try_again=ErrorCode.leader_not_available,
        rows={"topics": ("topics",)},
        complete=_add_cluster,
    ),
)
