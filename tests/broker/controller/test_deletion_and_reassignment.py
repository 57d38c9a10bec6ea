"""Deletions and reassignments, as documented by Kafka."""

import pytest

from broker.controller.assignment import ReplicaAssignment
from broker.controller.decisions import (
    DeleteTopic,
    RemoveDeletions,
    Send,
    WriteAssignment,
    WriteLeaderships,
)
from broker.protocol.errors import ErrorCode
from broker.protocol.schemas.stop_replica_schema import StopReplicaRequest
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.topic_partition import TopicPartition
from tests.broker.controller.steps import KEY, join_isr, reassign, start, stop

# ---- deletion -----------------------------------------------------------------------


def test_clients_are_told_then_replicas_stop_then_they_go_then_the_topic(world):
    world.create_topic("t", (1, 2))
    world.settle()
    world.decisions.clear()
    world.delete_topic("t")
    tell, *others = [it for it in world.decisions if isinstance(it, Send)]
    assert {type(it) for _, it in tell.requests} == {UpdateMetadataRequest}
    (state,) = tell.requests[0][1].topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.zk_version) == (-2, -2, -2)
    flags = [
        [
            (number, state.leader_epoch, state.delete_partition)
            for number, request in send.requests
            if isinstance(request, StopReplicaRequest)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        for send in others
    ]
    assert flags == [[(1, -2, False), (2, -2, False)], [(1, -2, True), (2, -2, True)]]
    assert "t" in world.znodes.topics
    world.settle()
    assert world.decisions[-1] == DeleteTopic("t")
    assert not world.core.context.topics


def test_a_topic_waits_for_its_dead_replicas(world):
    world.create_topic("t", (1, 2))
    world.settle()
    stop(world, 2)
    world.delete_topic("t")
    world.settle()
    assert KEY not in world.brokers[1].logs
    assert "t" in world.znodes.topics
    start(world, 2)
    world.settle()
    assert "t" not in world.znodes.topics
    assert KEY not in world.brokers[2].logs


def test_a_replica_that_dies_before_it_is_deleted_is_deleted_later(world):
    world.create_topic("t", (1, 2))
    world.settle()
    world.delete_topic("t")
    stop(world, 2)
    world.settle()
    assert "t" in world.znodes.topics
    start(world, 2)
    world.settle()
    assert "t" not in world.znodes.topics


def test_a_disk_that_does_not_delete_holds_the_topic(world):
    world.create_topic("t", (1, 2))
    world.settle()
    world.brokers[2].lose_directory(KEY)
    world.delete_topic("t")
    world.settle()
    assert "t" in world.znodes.topics
    start(world, 2)
    world.settle()
    assert "t" not in world.znodes.topics


def test_a_new_controller_goes_on_with_a_deletion(world):
    world.create_topic("t", (1, 2))
    world.settle()
    world.decisions_left = 2
    world.delete_topic("t")
    assert world.controller_epoch == 2
    world.settle()
    assert "t" not in world.znodes.topics


def test_an_unknown_topic_is_not_deleted(world):
    world.delete_topic("t")
    assert world.decisions[-1] == RemoveDeletions(("t",))
    assert world.znodes.deletions == set()


def test_partitions_of_a_topic_that_is_being_deleted_go_with_it(world):
    world.create_topic("t", (1, 2))
    world.delete_topic("t")
    world.add_partition("t", (1, 2))
    world.notice_partitions("t")
    assert list(world.znodes.states) == [KEY]
    world.settle()
    assert "t" not in world.znodes.topics


def test_partitions_that_are_added_unseen_outlive_a_reassignment(world):
    world.create_topic("t", (1, 2))
    world.add_partition("t", (1, 2))
    reassign(world, (2, 3))
    assert list(world.znodes.topics["t"].partitions) == [0, 1]
    world.notice_partitions("t")
    assert world.znodes.states[TopicPartition("t", 1)].leader == 1


def test_a_topic_removed_by_hand_is_forgotten(world):
    world.create_topic("t", (1, 2))
    del world.znodes.topics["t"], world.znodes.states[KEY]
    world.notice_topics()
    context = world.core.context
    assert not context.topics
    assert not context.topic_names
    assert not context.replica_states
    assert not context.partition_states


# ---- reassignment -------------------------------------------------------------------


def test_kip_455_from_123_to_456(make_world):
    """The table in Kafka's ``onPartitionReassignment``: RS, AR, RR, leader, ISR."""
    world = make_world(6)
    world.create_topic("t", (1, 2, 3))
    rows = []

    def note():
        state = world.znodes.states[KEY]
        row = (world.znodes.replicas(KEY), state.leader, state.isr)
        if not rows or rows[-1] != row:
            rows.append(row)

    def carry_out(decision, original=world._carry_out):
        found = original(decision)
        if isinstance(decision, WriteLeaderships | WriteAssignment):
            note()
        return found

    note()
    world._carry_out = carry_out
    assert reassign(world, (4, 5, 6)) is None
    join_isr(world, 1, 2, 3, 4, 5, 6)
    world.settle()
    moving = ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert rows == [
        (ReplicaAssignment((1, 2, 3)), 1, (1, 2, 3)),
        (moving, 1, (1, 2, 3)),
        (moving, 1, (1, 2, 3, 4, 5, 6)),
        (moving, 4, (1, 2, 3, 4, 5, 6)),
        # Unlike in Kafka's table, the removed replicas leave one at a time.
        (moving, 4, (2, 3, 4, 5, 6)),
        (moving, 4, (3, 4, 5, 6)),
        (moving, 4, (4, 5, 6)),
        (ReplicaAssignment((4, 5, 6)), 4, (4, 5, 6)),
    ]
    assert [KEY in world.brokers[number].logs for number in range(1, 7)] == (
        [False] * 3 + [True] * 3
    )
    assert world.core.reassignments == {}


def test_replicas_that_are_added_are_new_and_the_others_are_not(world):
    world.create_topic("t", (1, 2))
    world.settle()
    world.sent.clear()
    reassign(world, (2, 3))
    new = {
        number: state.is_new
        for number, request in world.sent
        if hasattr(request, "live_leaders")
        for topic in request.topic_states
        for state in topic.partition_states
    }
    assert new == {1: False, 2: False, 3: True}


def test_the_order_of_replicas_alone_is_changed_at_once(world):
    world.create_topic("t", (1, 2, 3))
    assert reassign(world, (3, 1, 2)) is None
    assert world.znodes.replicas(KEY) == ReplicaAssignment((3, 1, 2))
    assert world.znodes.states[KEY].leader == 1


def test_fewer_replicas_at_once(world):
    world.create_topic("t", (1, 2, 3))
    world.settle()
    reassign(world, (3,))
    world.settle()
    assert world.znodes.replicas(KEY) == ReplicaAssignment((3,))
    assert world.znodes.states[KEY].leader == 3
    assert [KEY in world.brokers[it].logs for it in (1, 2, 3)] == [False, False, True]


def test_a_reassignment_is_cancelled(world):
    world.create_topic("t", (1, 2))
    world.settle()
    reassign(world, (2, 3))
    world.settle()
    assert world.core.reassignments[KEY].adding == (3,)
    assert reassign(world, None) is None
    world.settle()
    assert world.znodes.replicas(KEY) == ReplicaAssignment((2, 1))
    assert KEY not in world.brokers[3].logs


def test_a_second_target_takes_the_place_of_the_first(make_world):
    world = make_world(4)
    world.create_topic("t", (1, 2))
    world.settle()
    reassign(world, (2, 3))
    world.settle()
    reassign(world, (2, 4))
    world.settle()
    assert KEY not in world.brokers[3].logs
    join_isr(world, 1, 2, 4)
    world.settle()
    assert world.znodes.replicas(KEY) == ReplicaAssignment((2, 4))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.invalid_replica_assignment),
        ((1, 1), ErrorCode.invalid_replica_assignment),
        ((1, -2), ErrorCode.invalid_replica_assignment),
        ((1, 7), ErrorCode.invalid_replica_assignment),
        (None, ErrorCode.no_reassignment_in_progress),
    ],
)
def test_an_invalid_reassignment_is_refused(world, target, code):
    world.create_topic("t", (1, 2))
    assert reassign(world, target).code is code
    unknown = TopicPartition("u", 0)
    refused = reassign(world, (1,), unknown)
    assert refused.code is ErrorCode.unknown_topic_or_partition


def test_the_only_replica_in_sync_is_not_cancelled_away(world):
    """Kafka's ZooKeeper controller would delete it; the KRaft controller refuses."""
    world.create_topic("t", (1,))
    reassign(world, (2, 3))
    world.settle()
    join_isr(world, 1, 2)
    stop(world, 1)
    assert world.znodes.states[KEY].isr == (2,)
    assert reassign(world, None).code is ErrorCode.invalid_replica_assignment


def test_a_reassignment_waits_for_the_brokers_that_it_needs(world):
    world.create_topic("t", (1, 2))
    reassign(world, (2, 3))
    stop(world, 3)
    start(world, 3)
    join_isr(world, 1, 2, 3)
    world.settle()
    assert world.znodes.replicas(KEY) == ReplicaAssignment((2, 3))


def test_a_new_controller_goes_on_with_a_reassignment(world):
    world.create_topic("t", (1, 2))
    world.settle()
    reassign(world, (2, 3))
    world.elect_controller()
    assert list(world.core.reassignments) == [KEY]
    join_isr(world, 1, 2, 3)
    assert world.znodes.replicas(KEY) == ReplicaAssignment((2, 3))


def test_a_deletion_ends_reassignments_and_takes_old_and_new_replicas(world):
    world.create_topic("t", (1, 2), (1, 2))
    world.settle()
    reassign(world, (2, 3))
    world.znodes.reassignments = {TopicPartition("t", 1): (3,)}
    world.run(world.core.reassignments_in_znode(dict(world.znodes.reassignments)))
    world.settle()
    assert KEY in world.brokers[3].logs
    world.delete_topic("t")
    assert world.znodes.reassignments == {}
    assert world.core.reassignments == {}
    world.settle()
    assert "t" not in world.znodes.topics
    assert [world.brokers[it].logs for it in (1, 2, 3)] == [{}, {}, {}]


def test_the_znode_of_reassignments_empties_as_they_end(world):
    world.create_topic("t", (1, 2), (1, 2))
    other = TopicPartition("t", 1)
    unknown = TopicPartition("u", 0)
    world.znodes.reassignments = {KEY: (2, 3), other: (2,), unknown: (1,)}
    world.run(world.core.reassignments_in_znode(dict(world.znodes.reassignments)))
    assert world.znodes.reassignments == {KEY: (2, 3)}
    join_isr(world, 1, 2, 3)
    assert world.znodes.reassignments == {}


def test_a_later_request_takes_precedence_over_the_znode(world):
    world.create_topic("t", (1, 2))
    world.znodes.reassignments = {KEY: (2, 3)}
    world.run(world.core.reassignments_in_znode(dict(world.znodes.reassignments)))
    assert reassign(world, (1, 3)) is None
    assert world.znodes.reassignments == {}
    assert world.core.reassignments[KEY].target == (1, 3)


def test_a_reassignment_may_be_bound_to_the_number_of_replicas(world):
    """The limit is the number of replicas, or of the target under way (KIP-860)."""
    world.create_topic("t", (1, 2))
    world.settle()

    def refused(*target):
        refusal = reassign(world, target, keep_replication_factor=True)
        return None if refusal is None else refusal.code

    assert refused(1, 2, 3) is ErrorCode.invalid_replication_factor
    assert (
        refused(
            3,
        )
        is ErrorCode.invalid_replication_factor
    )
    assert refused(2, 3) is None
    # The partition has three replicas for now, but its target has two.
    assert refused(1, 2, 3) is ErrorCode.invalid_replication_factor
    assert refused(3, 1) is None
    assert reassign(world, None, keep_replication_factor=True) is None
