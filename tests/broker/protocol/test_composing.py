"""Requests composed from partition states, compared with hand-written ones."""

from __future__ import annotations

from uuid import UUID

from broker.protocol.schemas.composing import (
    ControllerRequests,
    by_topic,
    during_delete,
    live_leaders,
    metadata_of,
)
from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.stop_replica_schema import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from broker.protocol.topic_partition import TopicPartition

ID = UUID(int=7)


REQUESTS = ControllerRequests(
    controller_id=1, controller_epoch=2, broker_epoch=3, topic_ids={"t": ID}
)


def led(index: int, leader: int = 5) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=index,
        controller_epoch=2,
        leader=leader,
        leader_epoch=6,
        isr=(5, 7),
        partition_epoch=8,
        replicas=(5, 7, 9),
    )


def test_topics_stand_in_the_order_of_their_first_partitions() -> None:
    keys = (("t", 1), ("u", 0), ("t", 0))
    states = {TopicPartition(topic, index): led(index) for topic, index in keys}
    assert REQUESTS.leader_and_isr(by_topic(states), kind=1) == LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=3,
        type=1,
        topic_states=(
            LeaderAndIsrTopicState(
                topic_name="t", topic_id=ID, partition_states=(led(1), led(0))
            ),
            LeaderAndIsrTopicState(topic_name="u", partition_states=(led(0),)),
        ),
    )


def test_clients_are_told_that_a_topic_is_being_deleted() -> None:
    told = metadata_of(during_delete(led(0)), (9,))
    state = UpdateMetadataPartitionState(
        partition_index=0,
        controller_epoch=2,
        leader=-2,
        leader_epoch=-2,
        isr=(5, 7),
        zk_version=-2,
        replicas=(5, 7, 9),
        offline_replicas=(9,),
    )
    request = REQUESTS.update_metadata({"t": [told]})
    assert request == UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=3,
        topic_states=(
            UpdateMetadataTopicState(
                topic_name="t", topic_id=ID, partition_states=(state,)
            ),
        ),
        live_brokers=(),
    )


def test_replicas_are_stopped_topic_by_topic() -> None:
    stop = StopReplicaPartitionState(partition_index=1, delete_partition=True)
    assert REQUESTS.stop_replica({"t": [stop]}) == StopReplicaRequest(
        controller_id=1,
        controller_epoch=2,
        broker_epoch=3,
        topic_states=(StopReplicaTopicState(topic_name="t", partition_states=(stop,)),),
    )


def test_leaders_that_are_alive_are_found_at_the_listener_between_brokers() -> None:
    brokers = [
        UpdateMetadataBroker(
            id=broker,
            endpoints=tuple(
                UpdateMetadataEndpoint(
                    port=port + broker, host="h", listener=name, security_protocol=0
                )
                for name, port in (("CLIENTS", 90), ("BROKERS", 190))
            ),
        )
        for broker in (1, 2)
    ]
    states = [led(0, leader) for leader in (2, 3, 2)]
    found = list(live_leaders(states, brokers, "BROKERS"))
    assert found == [LeaderAndIsrLiveLeader(broker_id=2, host_name="h", port=192)]
