"""A fake broker that answers from a table, with texts chosen by the test.

It listens on a fictitious host and answers real frames with the wire codec.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from trio.testing import memory_stream_pair

from broker.client.admin_changes import BROKER
from broker.client.consumer.consumer_protocol import encode_assignment
from broker.observation.metric import Metric
from broker.observation.metrics.endpoint import Exposition
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from broker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from broker.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from broker.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from broker.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from broker.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsResponse,
)
from broker.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from broker.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from broker.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from broker.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from broker.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from broker.protocol.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from broker.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from broker.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from broker.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from broker.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from broker.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from broker.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from broker.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from broker.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.codec import decode, encode
from broker.protocol.wire.header import parse_request_header
from tests.broker.log.witness import batch

METRICS_PORT = 9404
NONE, REFUSED = ErrorCode.none, ErrorCode.policy_violation
RECORDS = 7
VERSIONS = {
    ApiKey.FETCH: (4, 12),
    ApiKey.LIST_OFFSETS: (1, 7),
    ApiKey.METADATA: (0, 12),
    ApiKey.OFFSET_FETCH: (1, 7),
    ApiKey.DESCRIBE_GROUPS: (0, 5),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.DESCRIBE_CLUSTER: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
}
# Requests for changes, refused by default.
CHANGING = {
    ApiKey.OFFSET_COMMIT: (5, 8),
    ApiKey.CREATE_TOPICS: (4, 7),
    ApiKey.DELETE_TOPICS: (1, 5),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ELECT_LEADERS: (1, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
}


class FakeKafka:
    """One broker; ``text`` maps each field's name to its text."""

    def __init__(
        self, nursery: trio.Nursery, text: Callable[[str], str], topics: int = 1
    ) -> None:
        self._nursery = nursery
        self._text = text
        first = text("topic")
        self.topics = [first, *(f"{first}-{it:04}" for it in range(1, topics))]
        self.versions = {**VERSIONS, **CHANGING}
        self.calls: list[ApiKey] = []
        # If true, connections are accepted, and no request is answered.
        self.is_silent = False
        self.is_reachable = True
        # If true, a partition is being reassigned.
        self.is_moving = True
        self.groups = [text("group")]
        # Number of topics whose first partition each group has committed.
        self.committed = 1
        # Error code of every end offset.
        self.offsets_error = NONE
        # Error code of every change; NONE makes it succeed.
        self.verdict = REFUSED
        self.brokers = 1
        self.end = RECORDS
        self.committed_offset = 3
        self.usable_bytes = 1 << 28
        # Configs that are not Kafka's.
        self.own_configs: dict[str, str | None] = {
            "doorkeeper.scheduler": text("scheduler"),
            "doorkeeper.wfq.weights": text("weights"),
            "doorkeeper.metrics.port": str(METRICS_PORT),
        }
        # Sends the metrics endpoint's response; None if there is no endpoint.
        self.send_metrics: Callable[[Any], Awaitable[None]] | None = self._send_metrics
        # The metrics in the endpoint's format.
        self.metrics = metrics_text(text)
        self.scrapes = 0

    async def connect(self, host: str, port: int) -> Any:
        """Connect to the fake broker."""
        await trio.lowlevel.checkpoint()
        if not self.is_reachable:
            raise ConnectionRefusedError(111, "<b>out of reach</b>")
        ours, theirs = memory_stream_pair()
        if port == METRICS_PORT:
            self.scrapes += 1
            if self.send_metrics is None:
                raise ConnectionRefusedError(111, "<b>no endpoint</b>")
            self._nursery.start_soon(self.send_metrics, theirs)
            return ours
        self._nursery.start_soon(self._serve, theirs)
        return ours

    async def _serve(self, stream: Any) -> None:
        received = b""
        while chunk := await stream.receive_some():
            received += chunk
            while len(received) >= 4:
                end = 4 + int.from_bytes(received[:4], "big")
                if len(received) < end:
                    break
                frame, received = received[4:end], received[end:]
                if self.is_silent:
                    continue
                await stream.send_all(self._answer(frame))

    async def _send_metrics(self, stream: Any) -> None:
        request = await stream.receive_some()
        assert request.startswith(b"GET /metrics/requests HTTP/1.1\r\n")
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\n" + self.metrics.encode())
        await stream.aclose()

    def _answer(self, frame: bytes) -> bytes:
        header = parse_request_header(frame)
        key, version = ApiKey(header.api_key), header.api_version
        self.calls.append(key)
        request = decode(key, version, frame, header.body_offset)
        answer = getattr(self, f"_{key.name.lower()}")(request)
        return encode(key, version, header.correlation_id, answer)

    def _api_versions(self, request: Any) -> Any:
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(error_code=NONE, api_keys=keys)

    def _describe_cluster(self, request: Any) -> Any:
        host, rack = self._text("host"), self._text("rack")
        brokers = [
            DescribeClusterBroker(broker_id=it, host=host, port=1, rack=rack)
            for it in range(self.brokers)
        ]
        return DescribeClusterResponse(
            error_code=NONE,
            cluster_id=self._text("cluster"),
            controller_id=0,
            brokers=brokers,
        )

    def _metadata(self, request: Any) -> Any:
        partitions = [
            MetadataResponsePartition(
                error_code=NONE,
                partition_index=number,
                leader_id=0,
                replica_nodes=[0],
                isr_nodes=[0],
            )
            for number in range(2)
        ]
        topics = [
            MetadataResponseTopic(error_code=NONE, name=it, partitions=partitions)
            for it in self.topics
            if request.topics is None or it in {asked.name for asked in request.topics}
        ]
        host, rack = self._text("host"), self._text("rack")
        brokers = [
            MetadataResponseBroker(node_id=it, host=host, port=1, rack=rack)
            for it in range(self.brokers)
        ]
        return MetadataResponse(
            brokers=brokers,
            cluster_id=self._text("cluster"),
            controller_id=0,
            topics=topics,
        )

    def _describe_configs(self, request: Any) -> Any:
        config = DescribeConfigsResourceResult(
            name=self._text("key"),
            value=self._text("value"),
            read_only=False,
            config_source=1,
            is_sensitive=False,
            synonyms=[],
        )
        secret = DescribeConfigsResourceResult(
            name="password",
            value="not to be shown",
            read_only=False,
            config_source=5,
            is_sensitive=True,
            synonyms=[],
        )
        throttle = DescribeConfigsResourceResult(
            name="leader.replication.throttled.rate",
            value=self._text("1000"),
            read_only=False,
            config_source=2,
            is_sensitive=False,
            synonyms=[],
        )
        (asked,) = request.resources
        own = [
            DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=True,
                config_source=4,
                is_sensitive=False,
                synonyms=[],
            )
            for name, value in self.own_configs.items()
            if asked.resource_type == BROKER
        ]
        result = DescribeConfigsResult(
            error_code=NONE,
            error_message=None,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            configs=[config, secret, throttle, *own],
        )
        return DescribeConfigsResponse(results=[result])

    def _describe_log_dirs(self, request: Any) -> Any:
        rows = [
            DescribeLogDirsPartition(
                partition_index=it,
                partition_size=1024 * (it + 1),
                offset_lag=0,
                is_future_key=False,
            )
            for it in range(2)
        ]
        directory = DescribeLogDirsResult(
            error_code=NONE,
            log_dir=self._text("directory"),
            topics=[
                DescribeLogDirsTopic(name=it, partitions=rows) for it in self.topics
            ],
            total_bytes=1 << 30,
            usable_bytes=self.usable_bytes,
        )
        return DescribeLogDirsResponse(results=[directory])

    def _list_groups(self, request: Any) -> Any:
        groups = [
            ListedGroup(
                group_id=it,
                protocol_type="consumer",
                group_state=self._text("state"),
                group_type=self._text("type"),
            )
            for it in self.groups
        ]
        return ListGroupsResponse(error_code=NONE, groups=groups)

    def _describe_groups(self, request: Any) -> Any:
        def member(name: str, assigned: bytes) -> DescribedGroupMember:
            return DescribedGroupMember(
                member_id=self._text(name),
                group_instance_id=self._text("instance"),
                client_id=self._text("client"),
                client_host=self._text("address"),
                member_metadata=b"",
                member_assignment=assigned,
            )

        assigned = encode_assignment([TopicPartition(self.topics[0], 1)])
        group = DescribedGroup(
            error_code=NONE,
            group_id=request.groups[0],
            group_state=self._text("state"),
            protocol_type="consumer",
            protocol_data=self._text("assignor"),
            members=[member("member", assigned), member("other", b"\0\1\2")],
        )
        return DescribeGroupsResponse(groups=[group])

    def _consumer_group_describe(self, request: Any) -> Any:
        place = TopicPartitions(
            topic_id=None, topic_name=self.topics[0], partitions=[0, 1]
        )
        assigned = Assignment(topic_partitions=[place])
        member = Member(
            member_id=self._text("member"),
            instance_id=self._text("instance"),
            member_epoch=5,
            client_id=self._text("client"),
            client_host=self._text("address"),
            subscribed_topic_names=[self.topics[0]],
            assignment=assigned,
            target_assignment=assigned,
        )
        group = DescribedConsumerGroup(
            error_code=NONE,
            group_id=request.group_ids[0],
            group_state=self._text("state"),
            group_epoch=5,
            assignment_epoch=5,
            assignor_name=self._text("assignor"),
            members=[member],
        )
        return ConsumerGroupDescribeResponse(groups=[group])

    def _offset_fetch(self, request: Any) -> Any:
        row = OffsetFetchResponsePartition(
            partition_index=0,
            committed_offset=self.committed_offset,
            metadata=None,
            error_code=NONE,
        )
        topics = [
            OffsetFetchResponseTopic(name=it, partitions=[row])
            for it in self.topics[: self.committed]
        ]
        return OffsetFetchResponse(topics=topics)

    def _list_offsets(self, request: Any) -> Any:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=it.partition_index,
                        error_code=self.offsets_error,
                        offset=0 if it.timestamp == -2 else self.end,
                    )
                    for it in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _fetch(self, request: Any) -> Any:
        (topic,) = request.topics
        (asked,) = topic.partitions
        records = batch(
            [self._text(f"value {it}").encode() for it in range(RECORDS)],
            keys=[self._text("record key").encode()] * RECORDS,
            headers=[(self._text("header"), self._text("header value").encode())],
        )
        # The last record is directly before the end offset.
        records = (self.end - RECORDS).to_bytes(8, "big", signed=True) + records[8:]
        row = PartitionData(
            partition_index=asked.partition,
            error_code=NONE,
            high_watermark=self.end,
            aborted_transactions=None,
            records=records,
        )
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=topic.topic, partitions=[row])]
        )

    # ---- changes --------------------------------------------------------------------

    def _message(self) -> str | None:
        return None if self.verdict is NONE else self._text("message")

    def _create_topics(self, request: Any) -> Any:
        rows = [
            CreatableTopicResult(
                name=it.name, error_code=self.verdict, error_message=self._message()
            )
            for it in request.topics
        ]
        return CreateTopicsResponse(topics=rows)

    def _delete_topics(self, request: Any) -> Any:
        rows = [
            DeletableTopicResult(
                name=it, error_code=self.verdict, error_message=self._message()
            )
            for it in request.topic_names
        ]
        return DeleteTopicsResponse(responses=rows)

    def _create_partitions(self, request: Any) -> Any:
        rows = [
            CreatePartitionsTopicResult(
                name=it.name, error_code=self.verdict, error_message=self._message()
            )
            for it in request.topics
        ]
        return CreatePartitionsResponse(results=rows)

    def _incremental_alter_configs(self, request: Any) -> Any:
        rows = [
            AlterConfigsResourceResponse(
                error_code=self.verdict,
                error_message=self._message(),
                resource_type=it.resource_type,
                resource_name=it.resource_name,
            )
            for it in request.resources
        ]
        return IncrementalAlterConfigsResponse(responses=rows)

    def _elect_leaders(self, request: Any) -> Any:
        row = PartitionResult(
            partition_id=0, error_code=self.verdict, error_message=self._message()
        )
        found = ReplicaElectionResult(topic=self.topics[0], partition_result=[row])
        return ElectLeadersResponse(replica_election_results=[found])

    def _alter_partition_reassignments(self, request: Any) -> Any:
        row = ReassignablePartitionResponse(
            partition_index=0, error_code=self.verdict, error_message=self._message()
        )
        found = ReassignableTopicResponse(name=self.topics[0], partitions=[row])
        return AlterPartitionReassignmentsResponse(
            error_code=NONE, error_message=None, responses=[found]
        )

    def _list_partition_reassignments(self, request: Any) -> Any:
        row = OngoingPartitionReassignment(
            partition_index=0, replicas=[0, 1], adding_replicas=[1]
        )
        found = OngoingTopicReassignment(name=self.topics[0], partitions=[row])
        topics = [found] if self.is_moving else []
        return ListPartitionReassignmentsResponse(
            error_code=NONE, error_message=None, topics=topics
        )

    def _offset_commit(self, request: Any) -> Any:
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=it.partition_index, error_code=self.verdict
                    )
                    for it in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=topics)


def metrics_text(text: Callable[[str], str], *, requests: float = 2) -> str:
    """Return metrics of one class in one plane, in our broker's format."""
    made = Exposition()
    plane = {"plane": text("plane")}
    labels = {"class": text("class"), **plane}
    verdict = {**labels, "verdict": text("verdict")}
    of_broker = {"cluster_id": text("cluster"), "broker_id": "0"}
    prefix = "doorkeeper_requestmetrics_"
    rows = [
        ("doorkeeper_broker_info", of_broker, 1),
        *(
            (f"doorkeeper_plane_{it}", plane, value)
            for value, it in enumerate(("queued", "waiting", "seated", "away"), 3)
        ),
        (f"{prefix}totaltimems_count", labels, requests),
        *(
            (f"{prefix}{it}timems_sum", labels, requests * value)
            for value, it in enumerate(("requestqueue", "local", "total", "throttle"))
        ),
        (f"{prefix}preemptions_total", labels, requests / 2),
        (f"{prefix}requestqueuetimems", {**labels, "quantile": "0.99"}, 77.5),
        ("doorkeeper_admission_held_back_total", verdict, 9),
    ]
    for name, found, value in rows:
        made.add([Metric(name=name, kind="gauge", value=value, labels=found)])
    return made.text()
