"""The write half of Kafka's ``Admin``: topics, configs, leaders, replicas, offsets.

Changes of the cluster are requests to its controller. A call for one item raises the
broker's error; a call for partitions returns the error of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

from broker.client.admin_routing import AdminRouting
from broker.client.partitions import by_topic
from broker.client.retriable_errors import check
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from broker.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from broker.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from broker.protocol.messages.delete_topics import DeleteTopicsRequest
from broker.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from broker.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from broker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
)
from broker.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from broker.protocol.topic_partition import TopicPartition

TOPIC: Final = 2
BROKER: Final = 4
# Kafka's AlterConfigOp.
_SET, _DELETE = 0, 1
_PREFERRED, _UNCLEAN = 0, 1
# The broker's default number of partitions, or of replicas.
DEFAULT: Final = -1


class AdminChanges(AdminRouting):
    """Changes a cluster. Every call raises `KafkaError`."""

    # ---- topics ---------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int = DEFAULT,
        replicas: int = DEFAULT,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; the controller assigns its replicas."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[
                CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout=self._patience)
        answer = await self._of_controller(
            request, lambda it: [row.error_code for row in it.topics]
        )
        for row in answer.topics:
            check(row.error_code, row.error_message or name)

    async def add_partitions(self, name: str, count: int) -> None:
        """Add partitions to a topic until it has ``count``."""
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(
            topics=[topic], timeout=self._patience, validate_only=False
        )
        answer = await self._of_controller(
            request, lambda it: [row.error_code for row in it.results]
        )
        for row in answer.results:
            check(row.error_code, row.error_message or name)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        request = DeleteTopicsRequest(topic_names=[name], timeout=self._patience)
        answer = await self._of_controller(
            request, lambda it: [row.error_code for row in it.responses]
        )
        for row in answer.responses:
            check(row.error_code, row.error_message or name)

    # ---- configs --------------------------------------------------------------------

    async def alter_configs(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> None:
        """Set configs, or delete them (None); others keep their values.

        A broker's name is its id; the empty name stands for all brokers.
        """
        configs = [
            AlterableConfig(
                name=key,
                value=value,
                config_operation=_DELETE if value is None else _SET,
            )
            for key, value in changes.items()
        ]
        resource = AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=False
        )
        if resource_type == BROKER and name:
            answer = await self._at(int(name), request)
        else:
            answer = await self._of_controller(
                request, lambda it: [row.error_code for row in it.responses]
            )
        for row in answer.responses:
            check(row.error_code, row.error_message or name)

    # ---- leaders and replicas -------------------------------------------------------

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None, *, is_unclean: bool = False
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
        """Elect preferred leaders, or unclean ones for partitions without a leader.

        None: of all partitions; only partitions that need an election are returned.
        """
        topics = None
        if partitions is not None:
            topics = [
                TopicPartitions(topic=name, partitions=numbers)
                for name, numbers in by_topic(partitions).items()
            ]
        request = ElectLeadersRequest(
            election_type=_UNCLEAN if is_unclean else _PREFERRED,
            topic_partitions=topics,
            timeout=self._patience,
        )

        def codes(answer: ElectLeadersResponse) -> list[ErrorCode]:
            rows = answer.replica_election_results
            each = [it.error_code for row in rows for it in row.partition_result]
            return [answer.error_code, *each]

        answer = await self._of_controller(request, codes)
        check(answer.error_code, "ElectLeaders")
        return {
            TopicPartition(row.topic, it.partition_id): (
                it.error_code,
                it.error_message,
            )
            for row in answer.replica_election_results
            for it in row.partition_result
        }

    async def alter_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, tuple[ErrorCode, str | None]]:
        """Reassign partitions to replicas; None cancels a reassignment."""
        topics = [
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(
                        partition_index=it, replicas=replicas[TopicPartition(name, it)]
                    )
                    for it in numbers
                ],
            )
            for name, numbers in by_topic(replicas).items()
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=topics, timeout=self._patience
        )

        def codes(answer: AlterPartitionReassignmentsResponse) -> list[ErrorCode]:
            return [answer.error_code]

        answer = await self._of_controller(request, codes)
        check(answer.error_code, answer.error_message or "AlterPartitionReassignments")
        return {
            TopicPartition(row.name, it.partition_index): (
                it.error_code,
                it.error_message,
            )
            for row in answer.responses
            for it in row.partitions
        }

    async def list_reassignments(
        self,
    ) -> dict[TopicPartition, OngoingPartitionReassignment]:
        """Return the partitions that are being reassigned."""
        request = ListPartitionReassignmentsRequest(topics=None, timeout=self._patience)
        answer = await self._of_controller(request, lambda it: [it.error_code])
        check(answer.error_code, answer.error_message or "ListPartitionReassignments")
        return {
            TopicPartition(row.name, it.partition_index): it
            for row in answer.topics
            for it in row.partitions
        }

    # ---- groups ---------------------------------------------------------------------

    async def alter_offsets(
        self, coordinator_id: int, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets for a group, which must not have members."""
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=it,
                        committed_offset=offsets[TopicPartition(name, it)],
                        committed_metadata="",
                    )
                    for it in numbers
                ],
            )
            for name, numbers in by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(group_id=group, member_id="", topics=topics)
        answer = await self._at(coordinator_id, request)
        return {
            TopicPartition(row.name, it.partition_index): it.error_code
            for row in answer.topics
            for it in row.partitions
        }

    @property
    def _patience(self) -> timedelta:
        """Return the time limit for a broker, which the client waits for."""
        return timedelta(seconds=self.client.request_timeout_s)
