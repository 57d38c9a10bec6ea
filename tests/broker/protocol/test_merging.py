"""Merged controller requests: the same content in fewer requests, in order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from broker.protocol.schemas.leader_and_isr_schema import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from broker.protocol.schemas.merging import merging
from broker.protocol.schemas.stop_replica_schema import StopReplicaRequest
from broker.protocol.schemas.update_metadata_schema import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

IDS = {"t": UUID(int=1), "u": UUID(int=2)}


def leads(
    topic: str, partition: int, leader: int, epoch: int, *, is_new: bool = False
) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=partition,
        controller_epoch=3,
        leader=leader,
        leader_epoch=epoch,
        isr=(0, 1),
        partition_epoch=epoch,
        replicas=(0, 1),
        is_new=is_new,
    )
    return LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=3,
        broker_epoch=7,
        topic_states=(
            LeaderAndIsrTopicState(
                topic_name=topic, topic_id=IDS[topic], partition_states=(state,)
            ),
        ),
        live_leaders=(
            LeaderAndIsrLiveLeader(broker_id=leader, host_name="h", port=leader),
        ),
    )


def knows(
    topic: str, partition: int, leader: int, *alive: int
) -> UpdateMetadataRequest:
    state = UpdateMetadataPartitionState(
        partition_index=partition,
        controller_epoch=3,
        leader=leader,
        leader_epoch=1,
        isr=(0, 1),
        zk_version=1,
        replicas=(0, 1),
    )
    return UpdateMetadataRequest(
        controller_id=9,
        controller_epoch=3,
        broker_epoch=7,
        topic_states=(
            UpdateMetadataTopicState(
                topic_name=topic, topic_id=IDS[topic], partition_states=(state,)
            ),
        ),
        live_brokers=tuple(UpdateMetadataBroker(id=it, endpoints=()) for it in alive),
    )


def merged(waiting: list[Any]) -> list[Any]:
    """Run the merge to its end and return the requests."""
    steps = merging(waiting)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return list(done.value)


STOP = StopReplicaRequest(
    controller_id=9, controller_epoch=3, broker_epoch=7, topic_states=()
)


def test_the_newest_word_on_a_partition_is_said_once_and_leaders_first() -> None:
    waiting = [
        knows("t", 0, 0, 0, 1),
        leads("t", 1, 1, 5),
        knows("t", 1, 1, 0, 1, 2),
        leads("u", 0, 0, 2),
        leads("t", 1, 0, 6),
    ]
    leaders, metadata = merged(waiting)
    assert isinstance(leaders, LeaderAndIsrRequest)
    assert isinstance(metadata, UpdateMetadataRequest)
    said = {
        (topic.topic_name, topic.topic_id, state.partition_index): (
            state.leader,
            state.leader_epoch,
        )
        for topic in leaders.topic_states
        for state in topic.partition_states
    }
    assert said == {("t", IDS["t"], 1): (0, 6), ("u", IDS["u"], 0): (0, 2)}
    assert {it.broker_id for it in leaders.live_leaders} == {0, 1}
    (topic,) = metadata.topic_states
    assert [it.partition_index for it in topic.partition_states] == [0, 1]
    # The last request determines the live brokers.
    assert [it.id for it in metadata.live_brokers] == [0, 1, 2]
    assert merged(merged(waiting)) == merged(waiting)


def test_a_new_partition_stays_new() -> None:
    (told,) = merged([leads("t", 0, 0, 0, is_new=True), leads("t", 0, 1, 1)])
    assert told == replace(
        leads("t", 0, 1, 1, is_new=True),
        live_leaders=(
            LeaderAndIsrLiveLeader(broker_id=0, host_name="h", port=0),
            LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=1),
        ),
    )


def test_nothing_is_moved_past_a_replica_that_stops() -> None:
    first, last = leads("t", 0, 0, 1), leads("t", 0, 1, 2)
    assert merged([first, STOP, last]) == [first, STOP, last]


def test_one_request_is_what_it_was() -> None:
    assert merged([leads("t", 0, 0, 1)]) == [leads("t", 0, 0, 1)]
    assert merged([]) == []
