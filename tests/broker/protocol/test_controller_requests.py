"""One type per controller request, converted to every version's format and back.

Hand-written frames follow the schemas of Kafka 3.9. The table of Kafka's own frames
(test_golden_frames) checks the field order of every version.
"""

import dataclasses
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.schemas.controlled_shutdown_schema import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from broker.protocol.wire import codec
from broker.protocol.wire.header import parse_request_header

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NAME = st.text(max_size=6)
IDS = st.lists(INT32, max_size=3).map(tuple)
# In the protocol the zero id means that there is none.
TOPIC_ID = st.uuids().filter(lambda each: each.int != 0)


def tuples(item: st.SearchStrategy[Any], **options: Any) -> st.SearchStrategy[Any]:
    return st.lists(item, max_size=3, **options).map(tuple)


def topics(item: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw topics with distinct names and partitions, as grouping produces them."""
    return tuples(
        item.filter(lambda topic: topic.partition_states),
        unique_by=(lambda topic: topic.topic_name, lambda topic: repr(topic)),
    )


LEADER_AND_ISR = st.builds(
    LeaderAndIsrRequest,
    controller_id=INT32,
    is_kraft_controller=st.booleans(),
    controller_epoch=INT32,
    broker_epoch=INT64,
    type=st.integers(0, 2),
    topic_states=topics(
        st.builds(
            LeaderAndIsrTopicState,
            topic_name=NAME,
            topic_id=TOPIC_ID,
            partition_states=tuples(
                st.builds(
                    LeaderAndIsrPartitionState,
                    partition_index=INT32,
                    controller_epoch=INT32,
                    leader=INT32,
                    leader_epoch=INT32,
                    isr=IDS,
                    partition_epoch=INT32,
                    replicas=IDS,
                    adding_replicas=IDS,
                    removing_replicas=IDS,
                    is_new=st.booleans(),
                    leader_recovery_state=st.integers(0, 1),
                )
            ),
        )
    ),
    live_leaders=tuples(
        st.builds(LeaderAndIsrLiveLeader, broker_id=INT32, host_name=NAME, port=INT32)
    ),
)
STOP_REPLICA = st.builds(
    StopReplicaRequest,
    controller_id=INT32,
    is_kraft_controller=st.booleans(),
    controller_epoch=INT32,
    broker_epoch=INT64,
    topic_states=topics(
        st.builds(
            StopReplicaTopicState,
            topic_name=NAME,
            partition_states=tuples(
                st.builds(
                    StopReplicaPartitionState,
                    partition_index=INT32,
                    leader_epoch=INT32,
                    delete_partition=st.just(True),
                )
            ),
        )
    ),
)
UPDATE_METADATA = st.builds(
    UpdateMetadataRequest,
    controller_id=INT32,
    is_kraft_controller=st.booleans(),
    type=st.integers(0, 2),
    controller_epoch=INT32,
    broker_epoch=INT64,
    topic_states=topics(
        st.builds(
            UpdateMetadataTopicState,
            topic_name=NAME,
            topic_id=TOPIC_ID,
            partition_states=tuples(
                st.builds(
                    UpdateMetadataPartitionState,
                    partition_index=INT32,
                    controller_epoch=INT32,
                    leader=INT32,
                    leader_epoch=INT32,
                    isr=IDS,
                    zk_version=INT32,
                    replicas=IDS,
                    offline_replicas=IDS,
                )
            ),
        )
    ),
    live_brokers=tuples(
        st.builds(
            UpdateMetadataBroker,
            id=INT32,
            endpoints=st.builds(
                UpdateMetadataEndpoint,
                port=INT32,
                host=NAME,
                listener=st.just("PLAINTEXT"),
                security_protocol=st.just(0),
            ).map(lambda endpoint: (endpoint,)),
            rack=st.none() | NAME,
        )
    ),
)
CONTROLLED_SHUTDOWN = st.builds(
    ControlledShutdownRequest, broker_id=INT32, broker_epoch=INT64
)

# Fields absent before version ``since``, and their value after decoding.
LOST: dict[ApiKey, list[tuple[str, int, Any]]] = {
    ApiKey.LEADER_AND_ISR: [
        ("is_kraft_controller", 7, False),
        ("broker_epoch", 2, -1),
        ("type", 5, 0),
        ("topic_id", 5, None),
        ("adding_replicas", 3, ()),
        ("removing_replicas", 3, ()),
        ("is_new", 1, False),
        ("leader_recovery_state", 6, 0),
    ],
    ApiKey.STOP_REPLICA: [
        ("is_kraft_controller", 4, False),
        ("broker_epoch", 1, -1),
        ("leader_epoch", 3, -1),
    ],
    ApiKey.UPDATE_METADATA: [
        ("is_kraft_controller", 8, False),
        ("type", 8, 0),
        ("broker_epoch", 5, -1),
        ("topic_id", 7, None),
        ("offline_replicas", 4, ()),
        ("rack", 2, None),
    ],
    ApiKey.CONTROLLED_SHUTDOWN: [("broker_epoch", 2, -1)],
}


def as_of(value: Any, lost: dict[str, Any]) -> Any:
    """Return ``value`` with the fields in ``lost`` replaced, at any depth."""
    if isinstance(value, tuple):
        return tuple(as_of(item, lost) for item in value)
    if not dataclasses.is_dataclass(value):
        return value
    return dataclasses.replace(
        value,
        **{
            field.name: lost[field.name]
            if field.name in lost
            else as_of(getattr(value, field.name), lost)
            for field in dataclasses.fields(value)
        },
    )


@pytest.mark.parametrize(
    ("key", "requests"),
    [
        (ApiKey.LEADER_AND_ISR, LEADER_AND_ISR),
        (ApiKey.STOP_REPLICA, STOP_REPLICA),
        (ApiKey.UPDATE_METADATA, UPDATE_METADATA),
        (ApiKey.CONTROLLED_SHUTDOWN, CONTROLLED_SHUTDOWN),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
@given(data=st.data())
def test_request_comes_back_with_all_that_its_version_carries(
    key: ApiKey, requests: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    request = data.draw(requests)
    version = data.draw(st.integers(0, APIS[key].versions[1]))
    frame = codec.encode_request(key, version, 3, "c", request.to_wire(version))[4:]
    header = parse_request_header(frame)
    entity = codec.decode(key, version, frame, header.body_offset)
    lost = {name: value for name, since, value in LOST[key] if version < since}
    assert type(request).from_wire(entity) == as_of(request, lost)


def error(topic: str | None, topic_id: uuid.UUID | None) -> LeaderAndIsrPartitionError:
    return LeaderAndIsrPartitionError(
        topic_name=topic,
        topic_id=topic_id,
        partition_index=4,
        error_code=ErrorCode.stale_controller_epoch,
    )


@pytest.mark.parametrize("version", range(8))
def test_leader_and_isr_answers_by_name_before_version_5_and_by_id_after(
    version: int,
) -> None:
    topic_id = uuid.UUID(int=9)
    response = LeaderAndIsrResponse(
        error_code=ErrorCode.none, partition_errors=(error("t", topic_id),)
    )
    frame = codec.encode(4, version, 1, response.to_wire(version))[4:]
    _, entity = codec.decode_response(4, version, frame)
    expected = error("t", None) if version < 5 else error(None, topic_id)
    assert LeaderAndIsrResponse.from_wire(entity).partition_errors == (expected,)


@pytest.mark.parametrize(
    ("key", "response"),
    [
        (
            ApiKey.STOP_REPLICA,
            StopReplicaResponse(
                error_code=ErrorCode.none,
                partition_errors=(
                    StopReplicaPartitionError(
                        topic_name="t",
                        partition_index=1,
                        error_code=ErrorCode.fenced_leader_epoch,
                    ),
                ),
            ),
        ),
        (
            ApiKey.UPDATE_METADATA,
            UpdateMetadataResponse(error_code=ErrorCode.stale_broker_epoch),
        ),
        (
            ApiKey.CONTROLLED_SHUTDOWN,
            ControlledShutdownResponse(
                error_code=ErrorCode.none,
                remaining_partitions=(
                    RemainingPartition(topic_name="t", partition_index=2),
                ),
            ),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, ApiKey) else "",
)
def test_other_answers_are_the_same_in_every_version(
    key: ApiKey, response: Any
) -> None:
    for version in range(APIS[key].versions[1] + 1):
        frame = codec.encode(key, version, 1, response.to_wire(version))[4:]
        _, entity = codec.decode_response(key, version, frame)
        assert type(response).from_wire(entity) == response


def test_leader_and_isr_v2_frame_is_as_written_by_hand() -> None:
    request = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=3,
        topic_states=(
            LeaderAndIsrTopicState(
                topic_name="t",
                partition_states=(
                    LeaderAndIsrPartitionState(
                        partition_index=4,
                        controller_epoch=2,
                        leader=5,
                        leader_epoch=6,
                        isr=(5, 7),
                        partition_epoch=8,
                        replicas=(5, 7, 9),
                        is_new=True,
                    ),
                ),
            ),
        ),
        live_leaders=(LeaderAndIsrLiveLeader(broker_id=5, host_name="h", port=10),),
    )
    assert codec.encode_request(4, 2, 11, "c", request.to_wire(2)) == bytes.fromhex(
        "00000066"  # size
        "0004 0002 0000000b 0001 63"  # key, version, correlation id, client id
        "00000001 00000002 0000000000000003"  # controller, its epoch, broker epoch
        "00000001 0001 74 00000001"  # one topic of one partition
        "00000004 00000002 00000005 00000006"  # index, epoch, leader, leader epoch
        "00000002 00000005 00000007"  # ISR
        "00000008"  # partition epoch
        "00000003 00000005 00000007 00000009 01"  # replicas, is new
        "00000001 00000005 0001 68 0000000a"  # live leaders
    )


def test_stop_replica_v1_has_one_delete_flag_for_all_partitions() -> None:
    topic = StopReplicaTopicState(
        topic_name="t",
        partition_states=(
            StopReplicaPartitionState(partition_index=0, delete_partition=True),
            StopReplicaPartitionState(partition_index=1, delete_partition=False),
        ),
    )
    request = StopReplicaRequest(
        controller_id=1, controller_epoch=1, topic_states=(topic,)
    )
    with pytest.raises(AssertionError):
        request.to_wire(1)
    assert StopReplicaRequest.from_wire(request.to_wire(3)) == request


def test_listener_of_an_old_update_metadata_is_named_after_its_protocol() -> None:
    request = UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=1,
        topic_states=(),
        live_brokers=(
            UpdateMetadataBroker(
                id=1,
                endpoints=(
                    UpdateMetadataEndpoint(
                        port=9, host="h", listener="EXTERNAL", security_protocol=2
                    ),
                ),
            ),
        ),
    )
    read = UpdateMetadataRequest.from_wire(request.to_wire(2))
    assert read.live_brokers[0].endpoints[0].listener == "SASL_PLAINTEXT"
    read = UpdateMetadataRequest.from_wire(request.to_wire(3))
    assert read.live_brokers[0].endpoints[0].listener == "EXTERNAL"
