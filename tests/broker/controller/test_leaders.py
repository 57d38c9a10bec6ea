"""Leaders of new topics, after failures and on request, as documented by Kafka."""

from uuid import UUID

import pytest

from broker.controller.assignment import ReplicaAssignment, TopicAssignment
from broker.controller.decisions import RemovePreferredElection, Send
from broker.controller.elections import ElectionType
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrRequest
from broker.protocol.schemas.stop_replica_schema import StopReplicaRequest
from broker.protocol.schemas.update_metadata_schema import UpdateMetadataRequest
from broker.protocol.sentinels import NO_LEADER
from broker.protocol.topic_partition import TopicPartition
from tests.broker.controller.steps import KEY, start, stop


def leader_and_isr(world, key=KEY):
    """Return leader, leader epoch and ISR in ZooKeeper."""
    state = world.znodes.states[key]
    return state.leader, state.leader_epoch, state.isr


def sent_by(world, event):
    """Return the requests sent during an event: pairs of broker and request type."""
    world.sent.clear()
    event()
    return [(number, type(request)) for number, request in world.sent]


# ---- new topics -------------------------------------------------------------------


def test_a_new_partition_is_led_by_its_first_replica_and_all_are_in_sync(world):
    sent = sent_by(world, lambda: world.create_topic("t", (2, 3)))
    assert leader_and_isr(world) == (2, 0, (2, 3))
    assert sent == [
        (2, LeaderAndIsrRequest),
        (3, LeaderAndIsrRequest),
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (3, UpdateMetadataRequest),
    ]
    (request,) = [it for number, it in world.sent[:1]]
    (topic,) = request.topic_states
    (state,) = topic.partition_states
    assert state.is_new
    assert topic.topic_id == world.znodes.topics["t"].topic_id
    assert [(it.broker_id, it.host_name) for it in request.live_leaders] == [(2, "b2")]


def test_a_dead_replica_of_a_new_partition_is_not_in_sync(world):
    stop(world, 1)
    world.create_topic("t", (1, 2, 3))
    assert leader_and_isr(world) == (2, 0, (2, 3))


def test_a_new_partition_without_a_live_replica_waits_for_one(world):
    stop(world, 1)
    world.create_topic("t", (1,))
    assert world.znodes.states == {}
    start(world, 1)
    assert leader_and_isr(world) == (1, 0, (1,))


def test_many_topics_at_once_are_one_request_to_each_broker(world):
    for number in range(20):
        world.znodes.topics[f"t{number}"] = TopicAssignment(
            UUID(int=100 + number), {0: ReplicaAssignment((1, 2))}
        )
    world.sent.clear()
    world.notice_topics()
    leads = [it for _, it in world.sent if isinstance(it, LeaderAndIsrRequest)]
    assert [len(it.topic_states) for it in leads] == [20, 20]


# ---- failures and restarts of brokers -----------------------------------------------


def test_the_first_word_of_a_new_controller_names_all_topics(world):
    """Otherwise a broker that has just started would report the topics as deleted."""
    world.create_topic("t", (1, 2))
    world.create_topic("u", (2, 3))
    world.sent.clear()
    world.elect_controller()
    first: dict[int, object] = {}
    for number, request in world.sent:
        first.setdefault(number, request)
    assert sorted(first) == [1, 2, 3]
    for request in first.values():
        assert isinstance(request, UpdateMetadataRequest)
        assert {it.topic_name for it in request.topic_states} == {"t", "u"}


def test_when_a_leader_dies_the_next_in_sync_leads(world):
    world.create_topic("t", (1, 2, 3))
    stop(world, 1)
    assert leader_and_isr(world) == (2, 1, (2, 3))


def test_when_a_follower_dies_it_leaves_the_isr(world):
    world.create_topic("t", (1, 2, 3))
    stop(world, 3)
    assert leader_and_isr(world) == (1, 1, (1, 2))


def test_the_last_in_sync_stays_in_the_isr_when_it_dies(world):
    world.create_topic("t", (1,))
    stop(world, 1)
    assert leader_and_isr(world) == (-1, 1, (1,))
    start(world, 1)
    assert leader_and_isr(world) == (1, 2, (1,))


def test_a_replica_that_missed_records_does_not_lead(world):
    world.create_topic("t", (1, 2))
    stop(world, 2)
    stop(world, 1)
    start(world, 2)
    assert leader_and_isr(world) == (-1, 2, (1,))


def test_a_replica_that_missed_records_leads_where_the_topic_allows_it(world):
    world.create_topic("t", (1, 2))
    stop(world, 2)
    stop(world, 1)
    world.unclean.add("t")
    start(world, 2)
    assert leader_and_isr(world) == (2, 3, (2,))
    assert world.znodes.states[KEY].recovery_state == 1
    assert world.core.context.unclean_elections == 1


def test_allowing_it_later_elects_at_once(world):
    world.create_topic("t", (1, 2))
    world.create_topic("u", (1, 2))
    stop(world, 2)
    stop(world, 1)
    start(world, 2)
    world.unclean.update("tu")
    world.run(world.core.unclean_election_enabled("t"))
    assert leader_and_isr(world)[0] == 2
    assert leader_and_isr(world, TopicPartition("u", 0))[0] == -1
    world.run(world.core.unclean_election_enabled(None))
    assert leader_and_isr(world, TopicPartition("u", 0))[0] == 2


def test_a_broker_that_restarts_unnoticed_has_gone_and_come_back(world):
    world.create_topic("t", (1, 2))
    old = world.znodes.brokers[1].epoch
    world.start_broker(1)
    world.notice_brokers()
    assert leader_and_isr(world) == (2, 1, (2,))
    epochs = {it.broker_epoch for it in world.channels[1]}
    assert epochs == {world.znodes.brokers[1].epoch} != {old}


def test_a_new_broker_hears_who_is_alive_before_it_follows(world):
    world.create_topic("t", (1, 2, 3))
    stop(world, 3)
    sent = sent_by(world, lambda: start(world, 3))
    assert sent[:4] == [
        (1, UpdateMetadataRequest),
        (2, UpdateMetadataRequest),
        (3, UpdateMetadataRequest),
        (3, LeaderAndIsrRequest),
    ]
    first = next(it for number, it in world.sent if number == 3)
    assert [it.id for it in first.live_brokers] == [1, 2, 3]
    assert [it.topic_name for it in first.topic_states] == ["t"]


def test_a_broker_of_no_partition_is_announced_and_missed_all_the_same(world):
    all_of = [(1, UpdateMetadataRequest), (2, UpdateMetadataRequest)]
    assert sent_by(world, lambda: stop(world, 3)) == all_of


def test_a_broker_that_listens_elsewhere_is_announced(world):
    moved = world.znodes.brokers[3]
    world.znodes.brokers[3] = type(moved)(
        id=3, epoch=moved.epoch, endpoints=(), rack="r"
    )
    sent_by(world, world.notice_brokers)
    assert [number for number, _ in world.sent] == [1, 2, 3]
    assert all(it.live_brokers[2].rack == "r" for _, it in world.sent)


# ---- requested elections ------------------------------------------------------------


def elect(world, key, kind=ElectionType.PREFERRED):
    return world.run(world.core.elect_leaders([key], kind))[key]


def test_a_preferred_leader_leads_again_and_the_isr_stays(world):
    world.create_topic("t", (1, 2))
    stop(world, 1)
    start(world, 1)
    world.settle()
    broker, key, _ = next(world.led())
    world.propose(broker, key, (2, 1))
    assert elect(world, KEY) is ErrorCode.none
    assert leader_and_isr(world) == (1, 2, (2, 1))


def test_answers_of_elect_leaders(world):
    world.create_topic("t", (1, 2))
    unknown = TopicPartition("t", 7)
    assert elect(world, unknown) is ErrorCode.unknown_topic_or_partition
    assert elect(world, KEY) is ErrorCode.election_not_needed
    unclean = ElectionType.UNCLEAN
    assert elect(world, KEY, unclean) is ErrorCode.election_not_needed
    stop(world, 1)
    assert elect(world, KEY) is ErrorCode.preferred_leader_not_available
    stop(world, 2)
    assert elect(world, KEY, unclean) is ErrorCode.eligible_leaders_not_available
    start(world, 1)
    world.unclean_now = True
    assert elect(world, KEY, unclean) is ErrorCode.none
    assert leader_and_isr(world)[0] == 1


def test_an_election_in_the_znode_is_held_and_taken_away(world):
    world.create_topic("t", (1, 2))
    stop(world, 1)
    start(world, 1)
    world.decisions.clear()
    world.znodes.preferred = {KEY}
    world.run(world.core.preferred_election_requested({KEY}))
    assert world.decisions[-1] == RemovePreferredElection()
    assert world.znodes.preferred is None


@pytest.mark.parametrize(("astray", "moved"), [(1, False), (2, True)])
def test_leaders_are_balanced_above_a_tenth(world, astray, moved):
    """Of ten partitions that broker 1 should lead, one may have another leader."""
    world.create_topic("t", *([(1, 2)] * 10))
    for index in range(astray):
        key = TopicPartition("t", index)
        before = world.znodes.states[key]
        strayed = before.next(1, leader=2, isr=(1, 2))
        world.znodes.states[key] = strayed
        world.core.context.put_leadership(key, strayed)
    world.run(world.core.auto_rebalance())
    leaders = {it.leader for it in world.znodes.states.values()}
    assert leaders == ({1} if moved else {1, 2})


def test_balancing_asks_nobody_who_is_not_in_sync(world):
    world.create_topic("t", (1, 2))
    stop(world, 1)
    start(world, 1)
    world.decisions.clear()
    world.run(world.core.auto_rebalance())
    assert world.decisions == []


# ---- controlled shutdown ------------------------------------------------------------


def shut_down(world, number, epoch=-1):
    return world.run(world.core.controlled_shutdown(number, epoch))


def test_a_stopping_broker_hands_over_what_it_leads_and_stops_to_follow(world):
    world.create_topic("t", (1, 2), (2, 1))
    world.sent.clear()
    assert shut_down(world, 1, world.znodes.brokers[1].epoch) == ()
    assert leader_and_isr(world) == (2, 1, (2,))
    assert leader_and_isr(world, TopicPartition("t", 1)) == (2, 1, (2,))
    stops = [it for number, it in world.sent if isinstance(it, StopReplicaRequest)]
    flags = {
        s.delete_partition
        for it in stops
        for t in it.topic_states
        for s in t.partition_states
    }
    assert flags == {False}
    # The stopping broker receives metadata until it is gone.
    told = [
        number for number, it in world.sent if isinstance(it, UpdateMetadataRequest)
    ]
    assert 1 in told


def test_a_stopping_broker_learns_of_partitions_without_another_leader(world):
    world.create_topic("t", (1, 2), (1,))
    stop(world, 2)
    assert shut_down(world, 1) == (KEY,)
    assert leader_and_isr(world)[0] == 1
    start(world, 2)
    world.settle()
    assert shut_down(world, 1) == (KEY,)


def test_a_stopping_broker_is_not_elected(world):
    world.create_topic("t", (1, 2, 3))
    shut_down(world, 2)
    stop(world, 1)
    assert leader_and_isr(world)[0] == 3


@pytest.mark.parametrize(
    ("number", "epoch", "code"),
    [(7, -1, ErrorCode.broker_not_available), (1, 0, ErrorCode.stale_broker_epoch)],
)
def test_a_shutdown_is_refused(world, number, epoch, code):
    with pytest.raises(KafkaError) as refused:
        shut_down(world, number, epoch)
    assert refused.value.code is code


# ---- disks --------------------------------------------------------------------------


def test_a_replica_without_its_disk_does_not_lead(world):
    world.create_topic("t", (1, 2))
    world.settle()
    world.brokers[1].lose_directory(KEY)
    world.run(world.core.log_dirs_changed([1]))
    world.settle()
    assert leader_and_isr(world) == (2, 1, (2,))
    (state,) = [world.brokers[3].metadata[KEY]]
    assert state.offline_replicas == (1,)


def test_a_replica_that_finds_room_leads_again(world):
    world.create_topic("t", (1,))
    world.settle()
    world.brokers[1].lose_directory(KEY)
    world.run(world.core.log_dirs_changed([1]))
    world.settle()
    assert leader_and_isr(world) == (NO_LEADER, 1, (1,))
    world.brokers[1].find_room(KEY)
    world.run(world.core.log_dirs_changed([1]))
    world.settle()
    assert leader_and_isr(world) == (1, 2, (1,))
    assert world.core.context.is_online(1, KEY)


def test_late_answers_of_a_broker_that_came_back_are_not_heard(world):
    world.create_topic("t", (1, 2))
    world.brokers[1].lose_directory(KEY)
    request = next(
        it for it in world.channels[1] if isinstance(it, LeaderAndIsrRequest)
    )
    answer = world.brokers[1].obey(request)
    assert answer.partition_errors[0].error_code is ErrorCode.kafka_storage_error
    world.start_broker(1)
    world.notice_brokers()
    before = leader_and_isr(world)
    world.run(world.core.leader_and_isr_answered(1, request, answer))
    assert leader_and_isr(world) == before
    assert world.core.context.is_online(1, KEY)


# ---- a new controller ----------------------------------------------------------------


def test_a_new_controller_says_who_is_alive_then_who_leads(world):
    world.create_topic("t", (1, 2), (3,))
    world.stop_broker(3)
    world.decisions.clear()
    world.elect_controller()
    sends = [it for it in world.decisions if isinstance(it, Send)]
    assert {type(it) for _, it in sends[0].requests} == {UpdateMetadataRequest}
    kinds = [type(it) for _, it in sends[1].requests]
    assert kinds == [LeaderAndIsrRequest] * 2 + [UpdateMetadataRequest] * 2
    assert leader_and_isr(world, TopicPartition("t", 1)) == (-1, 1, (3,))
    assert leader_and_isr(world) == (1, 0, (1, 2))
    world.settle()
    assert world.brokers[1].controller_epoch == 2
