"""DescribeQuorum (55): describe the voters of the metadata quorum (KIP-595, KIP-836).

Versions: 0-2.

Behaviour: a single broker is the only voter and the leader of ``__cluster_metadata``
partition 0. Each start begins an epoch, and offsets count the changes of the registry.
Another partition, or more than one, is UNKNOWN_TOPIC_OR_PARTITION. Under ZooKeeper
there is no quorum: UNSUPPORTED_VERSION.

Version notes: v1 adds times of fetches, for a leader the current time (KIP-836); v2
adds the directories of replicas and the addresses of voters (KIP-853).

Left out: ``__cluster_metadata`` itself, which cannot be fetched: the registry is a file
in each log directory.
"""

from __future__ import annotations

from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import Pace

_METADATA: Final = [("__cluster_metadata", [0])]


async def handle(
    request: Request, body: DescribeQuorumRequest, broker: Broker
) -> DescribeQuorumResponse:
    """Describe the quorum, whose only voter is this broker."""
    try:
        quorum = broker.coordinator.controller.quorum()
    except KafkaError as refused:
        return DescribeQuorumResponse(
            error_code=refused.code, error_message=refused.message, topics=[]
        )
    pace = Pace()
    wanted = [
        (
            topic.topic_name,
            [each.partition_index async for each in pace.over(topic.partitions)],
        )
        async for topic in pace.over(body.topics)
    ]
    if wanted != _METADATA:
        return DescribeQuorumResponse(
            error_code=ErrorCode.none,
            topics=[
                ResponseTopicData(
                    topic_name=name,
                    partitions=[_unknown(index) async for index in pace.over(indexes)],
                )
                async for name, indexes in pace.over(wanted)
            ],
        )
    now_ms = broker.now_ms()
    leader = ReplicaState(
        replica_id=quorum.leader,
        log_end_offset=quorum.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    described = ResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        leader_id=quorum.leader,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.end_offset,
        current_voters=[leader],
        observers=[],
    )
    ((name, _),) = _METADATA
    listener = request.peer.listener
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        topics=[ResponseTopicData(topic_name=name, partitions=[described])],
        nodes=[
            Node(
                node_id=each.broker.id,
                listeners=[Listener(name=listener, host=each.host, port=each.port)],
            )
            for each in broker.metadata_cache.on_listener(listener)
            if each.broker.id == quorum.leader
        ],
    )


def _unknown(index: int) -> ResponsePartitionData:
    return ResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.unknown_topic_or_partition,
        error_message="the quorum is that of __cluster_metadata 0 alone",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_QUORUM,
    versions=(0, 2),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE),
)
