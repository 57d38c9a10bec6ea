"""ISR proposals of leaders are accepted and rejected as by Kafka."""

import pytest

from broker.controller.isr_proposals import IsrProposal
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.broker.controller.steps import KEY, join_isr, reassign, stop


def test_an_isr_grows_and_shrinks_without_a_new_leader_epoch(world):
    world.create_topic("t", (1, 2, 3))
    shrunk = join_isr(world, 1, 2)
    assert (shrunk.isr, shrunk.leader_epoch, shrunk.version) == ((1, 2), 0, 1)
    grown = join_isr(world, 1, 2, 3)
    assert (grown.isr, grown.leader_epoch, grown.version) == ((1, 2, 3), 0, 2)
    world.settle()
    assert world.brokers[3].metadata[KEY].isr == (1, 2, 3)


def judge(world, number=1, **changes):
    proposal = {"leader_epoch": 1, "partition_epoch": 1, "isr": (1,), **changes}
    world.proposal = {KEY: proposal["isr"]}
    epoch = world.znodes.brokers[number].epoch
    steps = world.core.alter_partition(number, epoch, {KEY: IsrProposal(**proposal)})
    return world.run(steps)[KEY]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"leader_epoch": 2}, ErrorCode.not_controller),
        ({"partition_epoch": 2}, ErrorCode.not_controller),
        ({"leader_epoch": 0}, ErrorCode.fenced_leader_epoch),
        ({"partition_epoch": 0}, ErrorCode.invalid_update_version),
        ({"isr": (1, 3)}, ErrorCode.ineligible_replica),
        ({"isr": (2,)}, ErrorCode.invalid_request),
        ({"isr": (1, 9)}, ErrorCode.invalid_request),
        ({"isr": (1, 1)}, ErrorCode.invalid_request),
        ({"recovery_state": 1}, ErrorCode.invalid_request),
        ({"number": 2}, ErrorCode.invalid_request),
    ],
)
def test_proposals_that_are_refused(world, changes, code):
    """Broker 3 has stopped. Broker 1 leads in epoch 1, ISR (1, 2), version 1."""
    world.create_topic("t", (1, 2, 3))
    stop(world, 3)
    assert judge(world, **changes) is code


def test_a_proposal_that_holds_already_is_granted_again(world):
    world.create_topic("t", (1, 2, 3))
    stop(world, 3)
    granted = judge(world)
    world.decisions.clear()
    assert judge(world) == granted
    assert world.decisions == []


def test_a_proposal_for_what_is_not_there(world):
    assert judge(world) is ErrorCode.unknown_topic_or_partition


def test_a_proposal_that_somebody_was_faster_than(world):
    world.create_topic("t", (1, 2, 3))
    stop(world, 3)
    faster = world.znodes.states[KEY].with_isr(1, (2, 1), 0)
    world.meddle = lambda decision: world.znodes.states.update({KEY: faster})
    assert judge(world) is ErrorCode.invalid_update_version
    # The controller adopts the conflicting ISR and sends it to the brokers.
    assert world.core.context.leadership(KEY) == faster
    world.settle()
    assert world.brokers[2].metadata[KEY].isr == (2, 1)


@pytest.mark.parametrize("epoch", [0, 99])
def test_a_broker_that_is_not_the_registered_one_proposes_nothing(world, epoch):
    world.create_topic("t", (1, 2))
    with pytest.raises(KafkaError) as refused:
        world.run(world.core.alter_partition(1, epoch, {}))
    assert refused.value.code is ErrorCode.stale_broker_epoch


def test_a_former_leader_that_completes_a_reassignment_is_refused(world):
    world.create_topic("t", (1,))
    reassign(world, (2,))
    assert join_isr(world, 1, 2) is ErrorCode.new_leader_elected
    assert world.znodes.states[KEY].leader == 2


def test_isrs_that_leaders_write_themselves_are_told_to_all(world):
    world.create_topic("t", (1, 2))
    written = world.znodes.states[KEY].with_isr(1, (1,), 0)
    world.znodes.states[KEY] = written
    world.run(world.core.isrs_changed({KEY: written, TopicPartition("u", 0): written}))
    world.settle()
    assert world.brokers[3].metadata[KEY].isr == (1,)
