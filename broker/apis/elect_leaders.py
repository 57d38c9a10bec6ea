"""ElectLeaders (43): have preferred, or unclean, leaders elected (KIP-183, KIP-460).

Versions: 0-2.

Behaviour: with one broker there is nothing to elect. ELECTION_NOT_NEEDED where the
preferred replica leads, or for an unclean election where anyone leads;
PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE otherwise. Asked for
all partitions (null), those that need none are left out of the answer, as in Kafka.
A type of election that there is not is INVALID_REQUEST, unless for no partition.

Version notes: v1 takes the type of election, v2 is flexible.

Left out: elections that change something; they come with a coordinator of several
brokers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.apis.common.answer import Row, answer
from broker.apis.common.api import Api, ErrorAnswer
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import Entity
from broker.requests.classifier import ADMIN
from broker.requests.request import Request

_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_MESSAGES: Final = {
    ErrorCode.invalid_request: "There is no election of this type.",
    ErrorCode.unknown_topic_or_partition: "The partition does not exist.",
    ErrorCode.eligible_leaders_not_available: "No replica can lead the partition.",
    ErrorCode.preferred_leader_not_available: "The preferred replica is not in sync.",
    ErrorCode.election_not_needed: "The partition has its leader.",
}


async def handle(request: Request, body: Entity, broker: Broker) -> Row:
    """Answer for each partition."""
    kind = getattr(body, "election_type", _PREFERRED)
    everyone = body.topic_partitions is None
    known = kind in (_PREFERRED, _UNCLEAN) or body.topic_partitions == ()
    topics: dict[str, list[Row]] = {}
    for key in _wanted(body, broker) if known or not everyone else ():
        error = _outcome(key, kind, broker)
        if not (everyone and error is ErrorCode.election_not_needed):
            topics.setdefault(key.topic, []).append(
                Row(
                    partition_id=key.partition,
                    error_code=error,
                    error_message=_MESSAGES[error],
                )
            )
    return answer(
        error_code=ErrorCode.none if known else ErrorCode.invalid_request,
        replica_election_results=[
            Row(topic=topic, partition_result=rows) for topic, rows in topics.items()
        ],
    )


def _wanted(body: Entity, broker: Broker) -> Iterable[TopicPartition]:
    if body.topic_partitions is None:
        return [
            TopicPartition(topic.name, index)
            for topic in broker.metadata_cache.topics()
            for index in topic.partitions
        ]
    return [
        TopicPartition(each.topic, index)
        for each in body.topic_partitions
        for index in each.partitions
    ]


def _outcome(key: TopicPartition, kind: int, broker: Broker) -> ErrorCode:
    topic = broker.metadata_cache.topic(key.topic)
    state = None if topic is None else topic.partitions.get(key.partition)
    if kind not in (_PREFERRED, _UNCLEAN):
        return ErrorCode.invalid_request
    if state is None:
        return ErrorCode.unknown_topic_or_partition
    if kind == _UNCLEAN:
        return (
            ErrorCode.eligible_leaders_not_available
            if state.leader == NO_LEADER
            else ErrorCode.election_not_needed
        )
    if state.replicas[:1] == (state.leader,):
        return ErrorCode.election_not_needed
    return ErrorCode.preferred_leader_not_available


API: Final = Api(
    key=ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    error_answer=ErrorAnswer(
        rows={
            "replica_election_results": ("topic_partitions",),
            "partition_result": ("partitions",),
        }
    ),
)
