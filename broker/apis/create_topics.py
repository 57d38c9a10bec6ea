"""CreateTopics (19): create topics with partitions, replicas and configs.

Versions: 2-7.

Behaviour:
- Each topic succeeds or fails independently. The response is sent once topics are
  durable and their partitions have leaders. After ``timeout_ms`` REQUEST_TIMED_OUT is
  returned, and the creation continues. NOT_CONTROLLER is returned if another broker is
  controller.
- A duplicate name fails with INVALID_REQUEST, with one row.
- A request may create 10,000 partitions, as in Kafka; otherwise POLICY_VIOLATION.
- A quota on mutations (KIP-599) counts the partitions of each topic, except in
  validations.
- Configs are checked before a topic is created. The request can be preempted between
  partitions.

Version notes:
- v4 allows -1 for the broker's defaults (KIP-464), v5 returns partitions, replicas and
  configs (KIP-525) and is flexible, v7 returns the topic id (KIP-516).

Left out: create-topic policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from broker.apis.common.access import (
    Check,
    allowed_on_cluster,
    allowed_on_topic,
    denied,
    in_handler,
)
from broker.apis.common.answer import NO_ID, to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.apis.common.placement import (
    Assignment,
    bad_assignment,
    check_replicas,
    check_replication_factor,
    place,
)
from broker.apis.common.topic_creation import check_new_name
from broker.authorization.acls import AclOperation, ResourceType
from broker.cluster.topic_configs import check_topic_configs
from broker.config import DEFAULT_REPLICATION_FACTOR, NUM_PARTITIONS
from broker.config.key_bounds import PARTITIONS_MAX
from broker.coordination.coordinator_roles import BrokerRack, NewTopic
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt

_DEFAULT = -1


async def handle(
    request: Request, body: CreateTopicsRequest, broker: Broker
) -> CreateTopicsResponse:
    """Create the topics one after the other."""
    named: Counter[str] = Counter()
    by_name: dict[str, CreatableTopic] = {}
    requested = 0
    async for topic in in_steps(body.topics):
        named[topic.name] += 1
        by_name[topic.name] = topic
        count = topic.num_partitions
        requested += count if count > 0 else len(topic.assignments)
    rows = []
    creates_all = allowed_on_cluster(
        request, broker, AclOperation.CREATE, logs_denial=False
    )
    for topic in by_name.values():
        try:
            if named[topic.name] > 1:
                raise KafkaError(
                    ErrorCode.invalid_request,
                    "Create topics request from client contains multiple entries for "
                    f"the topic {topic.name!r}",
                )
            if requested > PARTITIONS_MAX:
                raise KafkaError(
                    ErrorCode.policy_violation,
                    f"{requested} partitions in one request, at most {PARTITIONS_MAX}",
                )
            broker.coordinator.controller.check_is_controller()
            if not creates_all and not allowed_on_topic(
                request, broker, AclOperation.CREATE, topic.name
            ):
                raise denied(ResourceType.TOPIC)
            rows.append(await _create(request, topic, body, broker))
        except KafkaError as error:
            rows.append(_refused(topic.name, error))
        await preempt()
    return CreateTopicsResponse(topics=rows)


async def _create(
    request: Request, topic: CreatableTopic, body: CreateTopicsRequest, broker: Broker
) -> CreatableTopicResult:
    new = await _checked(topic, broker)
    topic_id = NO_ID
    if not body.validate_only:
        broker.client_quotas.count_mutations(
            request, len(new.assignment), strict_since=API.quota_exceeded_since
        )
        timeout_ms = max(to_ms(body.timeout), 1)
        created = await broker.coordinator.admin.create_topic(new, timeout_ms)
        topic_id = created.topic_id
    if not allowed_on_topic(
        request, broker, AclOperation.DESCRIBE_CONFIGS, new.name, logs_denial=False
    ):
        return CreatableTopicResult(
            name=new.name,
            topic_id=topic_id,
            error_code=ErrorCode.none,
            error_message=None,
            topic_config_error_code=ErrorCode.topic_authorization_failed,
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )
    return CreatableTopicResult(
        name=new.name,
        topic_id=topic_id,
        error_code=ErrorCode.none,
        error_message=None,
        topic_config_error_code=0,
        num_partitions=len(new.assignment),
        replication_factor=len(new.assignment[0]),
        configs=[
            CreatableTopicConfigs(
                name=entry.key.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=False,
            )
            for entry in broker.topic_configs(new.configs)
        ],
    )


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=NO_ID,
        topic_config_error_code=0,
        num_partitions=-1,
        replication_factor=-1,
        configs=(),
        error_code=error.code,
        error_message=error.message,
    )


async def _checked(topic: CreatableTopic, broker: Broker) -> NewTopic:
    """Return the topic to be created; raise `KafkaError` if it is invalid."""
    check_new_name(topic.name, broker)
    configs: dict[str, str] = {}
    async for entry in in_steps(topic.configs):
        if entry.value is None:
            raise KafkaError(ErrorCode.invalid_config, f"{entry.name} has no value")
        configs[entry.name] = entry.value
    check_topic_configs(configs, broker.config)
    assignment = _assignment(topic, broker)
    return NewTopic(name=topic.name, assignment=assignment, configs=configs)


def _assignment(topic: CreatableTopic, broker: Broker) -> Assignment:
    brokers = broker.coordinator.membership.live_brokers()
    partitions = topic.num_partitions
    replicas = topic.replication_factor
    if topic.assignments:
        if (partitions, replicas) != (_DEFAULT, _DEFAULT):
            raise KafkaError(
                ErrorCode.invalid_request,
                "both numPartitions or replicationFactor and replicasAssignments set",
            )
        return _given_assignment(topic, brokers)
    if replicas == _DEFAULT:
        replicas = broker.config[DEFAULT_REPLICATION_FACTOR]
    check_replication_factor(replicas)
    if partitions == _DEFAULT:
        partitions = broker.config[NUM_PARTITIONS]
    if partitions < 1:
        raise KafkaError(
            ErrorCode.invalid_partitions,
            f"{partitions} partitions, expected at least 1",
        )
    return place(brokers, partitions, replicas, broker.rng)


def _given_assignment(
    topic: CreatableTopic, brokers: Sequence[BrokerRack]
) -> Assignment:
    """Return the request's assignment for partitions 0 to n - 1; raise `KafkaError`."""
    by_index = {each.partition_index: each.broker_ids for each in topic.assignments}
    if sorted(by_index) != list(range(len(topic.assignments))):
        raise bad_assignment("partitions must be consecutive integers from 0")
    assignment = tuple(tuple(by_index[index]) for index in sorted(by_index))
    check_replicas(assignment, brokers)
    return assignment


API: Final = Api(
    key=ApiKey.CREATE_TOPICS,
    versions=(2, 7),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.CREATE, ResourceType.CLUSTER),
        Check(AclOperation.CREATE, ResourceType.TOPIC),
        Check(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
    ),
    quota_exceeded_since=6,
    error_answer=ErrorAnswer(rows={"topics": ("topics",)}),
)
