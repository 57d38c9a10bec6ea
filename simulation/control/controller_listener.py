"""A port where brokers send ISR proposals to a controller that is not a broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from broker.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from broker.protocol.messages.message import ResponseMessage
from broker.protocol.wire.codec import decode, encode
from broker.protocol.wire.header import parse_request_header
from simulation.control.elections import LeaderAndIsr
from simulation.virtual_time.apis import receive_frame
from simulation.virtual_time.memory_network import (
    MemoryConnection,
    MemoryListener,
    MemoryStream,
)

# Takes broker, its epoch, a topic's id and a proposal; returns the error code and, for
# a known broker, the partition's state after the decision.
Decide = Callable[
    [int, int, UUID, RequestPartitionData], tuple[ErrorCode, LeaderAndIsr | None]
]
_VERSION: Final = 2


async def serve_controller(listener: MemoryListener, decide: Decide) -> None:
    """Answer ApiVersions and AlterPartition until cancelled."""
    async with trio.open_nursery() as nursery:
        while True:
            connection, _ = await listener.accept()
            assert isinstance(connection, MemoryConnection)
            nursery.start_soon(_serve, MemoryStream(connection), decide)


async def _serve(stream: MemoryStream, decide: Decide) -> None:
    try:
        while True:
            frame = await receive_frame(stream)
            header = parse_request_header(frame)
            key, version = ApiKey(header.api_key), header.api_version
            request = decode(key, version, frame, header.body_offset)
            answer: ResponseMessage
            if key is ApiKey.ALTER_PARTITION:
                answer = _alter_partition(request, decide)
            else:
                answer = _api_versions()
            await stream.send_all(encode(key, version, header.correlation_id, answer))
    except (EOFError, trio.BrokenResourceError):
        await stream.aclose()


def _api_versions() -> ApiVersionsResponse:
    key = ApiVersion(
        api_key=ApiKey.ALTER_PARTITION, min_version=0, max_version=_VERSION
    )
    return ApiVersionsResponse(error_code=ErrorCode.none, api_keys=[key])


def _alter_partition(
    request: AlterPartitionRequest, decide: Decide
) -> AlterPartitionResponse:
    error, topics = ErrorCode.none, []
    for topic in request.topics:
        rows = []
        for proposed in topic.partitions:
            assert topic.topic_id is not None
            code, state = decide(
                request.broker_id, request.broker_epoch, topic.topic_id, proposed
            )
            if state is None:
                error = code
            else:
                rows.append(_decided(proposed.partition_index, code, state))
        topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=rows))
    return AlterPartitionResponse(error_code=error, topics=topics)


def _decided(index: int, code: ErrorCode, state: LeaderAndIsr) -> ResponsePartitionData:
    return ResponsePartitionData(
        partition_index=index,
        error_code=code,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        leader_recovery_state=0,
        partition_epoch=state.partition_epoch,
    )
