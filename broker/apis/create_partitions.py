"""CreatePartitions (37): add partitions to topics (KIP-195).

Versions: 0-3.

Behaviour: each topic succeeds or fails independently; a duplicate topic fails, with one
row. ``count`` is the new total number, and must exceed the current one
(INVALID_PARTITIONS). The response is sent once the partitions are durable and have
leaders; REQUEST_TIMED_OUT means that leaders are still missing. NOT_CONTROLLER is
returned if another broker is controller. Replicas of new partitions continue the
topic's placement, unless the request assigns them. A quota on mutations counts the
added partitions.

Version notes: v2 is flexible, v3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599).

Left out: nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from broker.apis.common.access import Check, check_topic, in_handler
from broker.apis.common.answer import NO_ERROR, to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.placement import Assignment, check_replicas, place
from broker.authorization.acls import AclOperation, ResourceType
from broker.config.key_bounds import PARTITIONS_MAX
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt


async def handle(
    request: Request, body: CreatePartitionsRequest, broker: Broker
) -> CreatePartitionsResponse:
    """Add the partitions, topic by topic."""
    named: Counter[str] = Counter()
    by_name: dict[str, CreatePartitionsTopic] = {}
    async for topic in in_steps(body.topics):
        named[topic.name] += 1
        by_name[topic.name] = topic
    rows = []
    for topic in by_name.values():
        outcome = NO_ERROR
        try:
            if named[topic.name] > 1:
                raise KafkaError(
                    ErrorCode.invalid_request, "the topic is named more than once"
                )
            broker.coordinator.controller.check_is_controller()
            check_topic(request, broker, AclOperation.ALTER, topic.name)
            await _extend(request, topic, body, broker)
        except KafkaError as error:
            outcome = error
        rows.append(
            CreatePartitionsTopicResult(
                name=topic.name, error_code=outcome.code, error_message=outcome.message
            )
        )
        await preempt()
    return CreatePartitionsResponse(results=rows)


async def _extend(
    request: Request,
    topic: CreatePartitionsTopic,
    body: CreatePartitionsRequest,
    broker: Broker,
) -> None:
    """Add partitions to one topic; raise `KafkaError`."""
    is_counted = False
    while True:
        first, assignment = _added(topic, broker)
        if body.validate_only:
            return
        if not is_counted:
            broker.client_quotas.count_mutations(
                request, len(assignment), strict_since=API.quota_exceeded_since
            )
            is_counted = True
        if await broker.coordinator.admin.create_partitions(
            topic.name, first, assignment, max(to_ms(body.timeout), 1)
        ):
            return
        # Another request has changed the number: check the request again.


def _added(topic: CreatePartitionsTopic, broker: Broker) -> tuple[int, Assignment]:
    """Return the first new partition, and the replicas of all; raise `KafkaError`."""
    known = broker.coordinator.admin.topics.get(topic.name)
    if known is None:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition, f"there is no topic {topic.name!r}"
        )
    present = len(known.leader_epochs)
    added = topic.count - present
    if added <= 0:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"Topic currently has {present} partitions, which is not less than the "
            f"requested {topic.count}",
        )
    if added > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.policy_violation,
            f"{added} partitions in one request, at most {PARTITIONS_MAX}",
        )
    brokers = broker.coordinator.membership.live_brokers()
    if topic.assignments is None:
        replicas = _replicas(topic.name, broker)
        wanted = min(len(replicas), len(brokers))
        return present, place(
            brokers, added, wanted, broker.rng, first=present, leader=replicas[0]
        )
    if len(topic.assignments) != added:
        raise KafkaError(
            ErrorCode.invalid_replica_assignment,
            f"{len(topic.assignments)} assignments for {added} new partitions",
        )
    assignment = tuple(tuple(each.broker_ids) for each in topic.assignments)
    check_replicas(assignment, brokers)
    return present, assignment


def _replicas(name: str, broker: Broker) -> tuple[int, ...]:
    """Return the replicas of partition 0, whose placement the new ones continue."""
    topic = broker.metadata_cache.topic(name)
    first = None if topic is None else topic.partitions.get(0)
    # The replicas are empty if the controller has sent none.
    if first is None or not first.replicas:
        raise KafkaError(
            ErrorCode.unknown_topic_or_partition,
            f"{name!r} has no first partition to place others after",
        )
    return first.replicas


API: Final = Api(
    key=ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.ALTER, ResourceType.TOPIC),
    ),
    quota_exceeded_since=3,
    error_answer=ErrorAnswer(rows={"results": ("topics",)}),
)
