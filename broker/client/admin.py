"""The administration client: a cluster's brokers, topics, configs, disks and groups.

Kafka's ``Admin``; changes are in `admin_changes`. Each call sends one request to one
broker, and returns the rows of the response. The caller combines the responses of
several brokers, so an unavailable broker does not hide the others' rows.

Read calls create nothing: topics are not auto-created, and groups are described by the
broker that lists them. A search for the coordinator of a group would create
``__consumer_offsets``.

UNSUPPORTED_VERSION is raised for an API that a broker does not serve.

>>> async def example():
...     async with open_admin("localhost:9092") as admin:
...         print(await admin.describe_cluster())
"""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from broker.client.admin_changes import BROKER, AdminChanges
from broker.client.admin_routing import BrokerDescription
from broker.client.background_tasks import background
from broker.client.client_config import COMMON, read_settings
from broker.client.client_login import logged_in
from broker.client.client_tls import secured
from broker.client.network_client import Connect, connect_tcp
from broker.client.partitions import by_topic
from broker.client.retriable_errors import check
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
)
from broker.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from broker.protocol.messages.describe_cluster import DescribeClusterRequest
from broker.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from broker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
)
from broker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)
from broker.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from broker.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from broker.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from broker.protocol.messages.metadata import MetadataResponseTopic
from broker.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from broker.protocol.topic_partition import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
_QUORUM: Final = "__cluster_metadata"
_NO_OFFSET: Final = -1
CommittedOffset: TypeAlias = (
    OffsetFetchResponsePartition | OffsetFetchResponsePartitions
)


class ClusterDescription(NamedTuple):
    """A cluster; ``controller_id`` is -1 if there is none or it is unknown.

    With ``has_quorum`` the controller is the leader of a metadata quorum. Under KRaft
    the controller may be a process that is not a broker. A single Doorkeeper leads a
    quorum of its own.
    """

    cluster_id: str | None
    controller_id: int
    has_quorum: bool
    brokers: tuple[BrokerDescription, ...]


@asynccontextmanager
async def open_admin(
    bootstrap: str,
    *,
    connect: Connect = connect_tcp,
    ssl_context: ssl.SSLContext | None = None,
    rng: random.Random | None = None,
    **settings: Any,
) -> AsyncIterator[KafkaAdmin]:
    """Open an administration client for the cluster at ``bootstrap``.

    Settings are the common ones of producers and consumers. Raises `ConfigError`.
    """
    config = read_settings(COMMON, settings)
    connect = logged_in(config, secured(config, connect, ssl_context))
    admin = KafkaAdmin(config, bootstrap, connect, rng or random.Random())
    async with background() as nursery:
        await nursery.start(admin.client.run)
        yield admin


class KafkaAdmin(AdminChanges):
    """Administration client, from `open_admin`. Every call raises `KafkaError`."""

    # ---- the cluster ----------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """Return brokers and controller; by Metadata if DescribeCluster is missing."""
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, include_fenced_brokers=True
        )
        try:
            answer = await self._anywhere(request)
        except KafkaError as error:
            if error.code is not ErrorCode.unsupported_version:
                raise
            return await self._by_metadata()
        check(answer.error_code, answer.error_message)
        brokers = tuple(
            BrokerDescription(it.broker_id, it.host, it.port, it.rack, it.is_fenced)
            for it in answer.brokers
        )
        return await self._described(answer.cluster_id, answer.controller_id, brokers)

    async def _by_metadata(self) -> ClusterDescription:
        answer = await self._metadata([])
        brokers = tuple(
            BrokerDescription(it.node_id, it.host, it.port, it.rack)
            for it in answer.brokers
        )
        return await self._described(answer.cluster_id, answer.controller_id, brokers)

    async def _described(
        self, cluster_id: str | None, named: int, brokers: tuple[BrokerDescription, ...]
    ) -> ClusterDescription:
        self._take(brokers)
        leader = await self._quorum_leader()
        controller_id = named if leader is None else leader
        return ClusterDescription(
            cluster_id, controller_id, leader is not None, brokers
        )

    async def _quorum_leader(self) -> int | None:
        """Return the leader of the metadata quorum; None if there is no quorum.

        Under KRaft the controller in Metadata and DescribeCluster is a random live
        broker (``KRaftMetadataCache.getRandomAliveBroker``).
        """
        row = RequestPartitionData(partition_index=0)
        topic = RequestTopicData(topic_name=_QUORUM, partitions=[row])
        try:
            answer = await self._anywhere(DescribeQuorumRequest(topics=[topic]))
        except KafkaError as error:
            if error.code is ErrorCode.unsupported_version:
                return None
            raise
        if answer.error_code is ErrorCode.unsupported_version:
            return None
        found = [it.leader_id for topic in answer.topics for it in topic.partitions]
        is_answered = answer.error_code is ErrorCode.none
        return found[0] if is_answered and found else -1

    # ---- topics ---------------------------------------------------------------------

    async def describe_topics(
        self, names: Iterable[str] | None = None
    ) -> Sequence[MetadataResponseTopic]:
        """Return topics by name, or all; each has its own error code."""
        answer = await self._metadata(None if names is None else list(names))
        return answer.topics

    async def describe_configs(
        self, resource_type: int, name: str, keys: Sequence[str] | None = None
    ) -> Sequence[DescribeConfigsResourceResult]:
        """Return the configs ``keys``, or all, of a topic or a broker.

        The name of a broker is its id.
        """
        resource = DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=keys
        )
        request = DescribeConfigsRequest(resources=[resource])
        if resource_type == BROKER:
            answer = await self._at(int(name), request)
        else:
            answer = await self._anywhere(request)
        for result in answer.results:
            check(result.error_code, result.error_message)
        return [it for result in answer.results for it in result.configs]

    async def list_offsets(
        self, leader_id: int, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, ListOffsetsPartitionResponse]:
        """Return offsets from the partitions' leader; each has its own error code."""
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=it, timestamp=timestamp)
                    for it in numbers
                ],
            )
            for name, numbers in by_topic(partitions).items()
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        answer = await self._at(leader_id, request)
        return {
            TopicPartition(topic.name, it.partition_index): it
            for topic in answer.topics
            for it in topic.partitions
        }

    async def fetch(
        self, leader_id: int, partition: TopicPartition, offset: int, max_bytes: int
    ) -> PartitionData:
        """Return batches from ``offset`` on, at least one if any, without waiting."""
        topic, number = partition
        row = FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait=timedelta(0),
            min_bytes=0,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=[row])],
        )
        answer = await self._at(leader_id, request)
        check(answer.error_code, topic)
        for found in (it for each in answer.responses for it in each.partitions):
            check(found.error_code, f"{topic}-{number}")
            return found
        raise KafkaError(ErrorCode.unknown_topic_or_partition, f"{topic}-{number}")

    async def describe_log_dirs(
        self, broker_id: int
    ) -> Sequence[DescribeLogDirsResult]:
        """Return a broker's log directories with the sizes of all its replicas."""
        answer = await self._at(broker_id, DescribeLogDirsRequest(topics=None))
        check(answer.error_code, "DescribeLogDirs")
        return answer.results

    # ---- groups ---------------------------------------------------------------------

    async def list_groups(self, broker_id: int) -> Sequence[ListedGroup]:
        """Return the groups that a broker coordinates."""
        answer = await self._at(broker_id, ListGroupsRequest())
        check(answer.error_code, "ListGroups")
        return answer.groups

    async def describe_groups(
        self, coordinator_id: int, groups: Iterable[str]
    ) -> Sequence[DescribedGroup]:
        """Return groups of one coordinator; each has its own error code."""
        request = DescribeGroupsRequest(groups=list(groups))
        return (await self._at(coordinator_id, request)).groups

    async def describe_consumer_groups(
        self, coordinator_id: int, groups: Iterable[str]
    ) -> Sequence[DescribedConsumerGroup]:
        """Return groups of KIP-848 of one coordinator, each with an error code."""
        request = ConsumerGroupDescribeRequest(
            group_ids=list(groups), include_authorized_operations=False
        )
        return (await self._at(coordinator_id, request)).groups

    async def committed(
        self, coordinator_id: int, group: str
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return all offsets that a group has committed; each has an error code."""
        found = await self._committed(coordinator_id, [group])
        if group not in found:
            raise KafkaError(ErrorCode.unknown_server_error, "another group's offsets")
        check(found[group].error_code, group)
        return found[group].offsets

    async def committed_by_group(
        self, coordinator_id: int, groups: Sequence[str]
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """Return the committed offsets of groups; groups with an error are left out.

        Sends one request, or one per group to brokers before Kafka 3.0.
        """
        found = await self._committed(coordinator_id, groups)
        for it in groups:
            if it not in found:
                found |= await self._committed(coordinator_id, [it])
        return {
            it: found[it].offsets
            for it in groups
            if it in found and found[it].error_code is ErrorCode.none
        }

    async def _committed(
        self, coordinator_id: int, groups: Sequence[str]
    ) -> dict[str, _Committed]:
        """Fetch the offsets of groups; before version 8 of the first group only."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=it, topics=None) for it in groups],
            group_id=groups[0],
            topics=None,
        )
        answer = await self._at(coordinator_id, request)
        if not answer.groups:
            return {groups[0]: _Committed(answer.error_code, _offsets(answer.topics))}
        return {
            it.group_id: _Committed(it.error_code, _offsets(it.topics))
            for it in answer.groups
        }


class _Committed(NamedTuple):
    """The error of a group, or its offsets."""

    error_code: ErrorCode
    offsets: dict[TopicPartition, CommittedOffset]


def _offsets(
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics],
) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(topic.name, it.partition_index): it
        for topic in topics
        for it in topic.partitions
        if it.committed_offset != _NO_OFFSET
    }


def by_leader(
    topics: Iterable[MetadataResponseTopic],
    wanted: Iterable[TopicPartition],
) -> Mapping[int, list[TopicPartition]]:
    """Return the wanted partitions by leader; those without a leader are left out."""
    leaders = {
        (topic.name, it.partition_index): it.leader_id
        for topic in topics
        for it in topic.partitions
    }
    found: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        leader = leaders.get(partition, -1)
        if leader >= 0:
            found.setdefault(leader, []).append(partition)
    return found
