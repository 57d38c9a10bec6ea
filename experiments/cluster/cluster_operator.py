"""Requests of an operator to the controller: topics, replicas, elections.

Like Kafka's own tools, each request has a connection of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from typing import TypeVar

import trio

from broker.controller.elections import ElectionType
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from broker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    TopicPartitions,
)
from broker.protocol.messages.message import RequestMessage, ResponseMessage
from broker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode_response, encode_request
from experiments.cluster.cluster_under_test import LOST, ClusterUnderTest
from experiments.processes.children import RunFailed

A = TypeVar("A", bound=ResponseMessage)

_CLIENT_ID = "operator"
_TIMEOUT = timedelta(seconds=30)
_PATIENCE_S, _PAUSE_S = 60.0, 0.1
_VERSIONS = {
    ApiKey.METADATA: 7,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.ELECT_LEADERS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
}
# Outcomes that are no fault: the elected leader is gone, or leads already.
_UNCHANGED = (
    ErrorCode.none,
    ErrorCode.election_not_needed,
    ErrorCode.preferred_leader_not_available,
)


class ClusterOperator:
    """Sends requests to the controller about ``topics``: partition counts by name."""

    def __init__(self, under_test: ClusterUnderTest, topics: Mapping[str, int]) -> None:
        self._under_test = under_test
        self._topics = topics
        self.keys = [
            TopicPartition(topic, partition)
            for topic, count in topics.items()
            for partition in range(count)
        ]

    async def wait_for_all(self) -> None:
        """Wait until the controller knows all brokers, and itself as controller.

        :raises RunFailed: if that takes too long.
        """
        wanted = {
            node.number
            for node in (*self._under_test.nodes, self._under_test.controller)
        }
        with trio.move_on_after(_PATIENCE_S):
            while True:
                metadata = await self._metadata()
                if metadata is not None:
                    alive = {int(it.node_id) for it in metadata.brokers}
                    controller = self._under_test.controller.number
                    controls = int(metadata.controller_id) == controller
                    if alive == wanted and controls:
                        return
                await trio.sleep(_PAUSE_S)
        raise RunFailed(f"the brokers are no cluster after {_PATIENCE_S:.0f} s")

    async def _metadata(self) -> MetadataResponse | None:
        try:
            return await self._call(
                MetadataRequest(topics=[], allow_auto_topic_creation=False)
            )
        except LOST:
            return None

    async def create(self, replicas: Sequence[int]) -> None:
        """Create all topics with these replicas; the first one should lead."""
        topics = [
            CreatableTopic(
                name=topic,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(
                        partition_index=index, broker_ids=list(replicas)
                    )
                    for index in range(count)
                ],
                configs=[],
            )
            for topic, count in self._topics.items()
        ]
        answer = await self._call(CreateTopicsRequest(topics=topics, timeout=_TIMEOUT))
        for row in answer.topics:
            _expect(row.error_code, f"creating {row.name}")

    async def reassign(self, replicas: Sequence[int]) -> None:
        """Give all partitions these replicas, the preferred first."""
        wanted = [
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=index, replicas=list(replicas)
                    )
                    for index in range(count)
                ],
            )
            for topic, count in self._topics.items()
        ]
        answer = await self._call(
            AlterPartitionReassignmentsRequest(timeout=_TIMEOUT, topics=wanted)
        )
        _expect(answer.error_code, "reassigning")
        for topic in answer.responses:
            for row in topic.partitions:
                _expect(row.error_code, f"reassigning {topic.name}")

    async def elect(self, *, one_by_one: bool) -> None:
        """Elect preferred leaders: in one request, or in one for each."""
        for keys in [[key] for key in self.keys] if one_by_one else [self.keys]:
            await self._elect(keys)

    async def balance(self) -> None:
        """Elect preferred leaders of all partitions with another leader."""
        await self._elect(None)

    async def _elect(self, keys: Iterable[TopicPartition] | None) -> None:
        wanted = None
        if keys is not None:
            wanted = [
                TopicPartitions(
                    topic=topic, partitions=[key.partition for key in of_topic]
                )
                for topic, of_topic in groupby(keys, key=lambda key: key.topic)
            ]
        answer = await self._call(
            ElectLeadersRequest(
                election_type=int(ElectionType.PREFERRED),
                topic_partitions=wanted,
                timeout=_TIMEOUT,
            )
        )
        _expect(answer.error_code, "an election")
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                _expect(row.error_code, f"an election of {topic.topic}", _UNCHANGED)

    async def _call(self, request: RequestMessage[A]) -> A:
        key = request.api_key
        version = _VERSIONS[key]
        wire = await self._under_test.wire(self._under_test.controller.data)
        try:
            answer = await wire.exchange(
                encode_request(key, version, 0, _CLIENT_ID, request)
            )
        finally:
            await wire.close()
        answered: A = decode_response(key, version, answer)[1]
        return answered


def _expect(
    code: ErrorCode, what: str, expected: Sequence[ErrorCode] = (ErrorCode.none,)
) -> None:
    if ErrorCode(code) not in expected:
        raise RunFailed(f"{what}: the controller answered {ErrorCode(code).name}")
