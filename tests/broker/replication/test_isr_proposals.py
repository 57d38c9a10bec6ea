"""A response to AlterPartition settles the proposal it answers, and no later one."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.replication.isr_changes import BATCH, IsrProposals

TOPIC_ID = UUID(int=1)


def leader(index=0):
    """Return a partition as seen by the proposals; it has proposed the ISR (1, 2)."""
    return SimpleNamespace(
        key=TopicPartition("t", index),
        topic_id=TOPIC_ID,
        is_leader=True,
        leader_epoch=3,
        partition_epoch=5,
        isr=(1,),
        proposed_isr=(1, 2),
        withdraw_proposal=lambda: None,
        accept_isr=lambda *decided: True,
    )


def answered(code):
    decided = SimpleNamespace(
        partition_index=0,
        error_code=code,
        leader_epoch=3,
        isr=(1, 2),
        partition_epoch=6,
    )
    topic = SimpleNamespace(topic_id=TOPIC_ID, partitions=[decided])
    return SimpleNamespace(error_code=ErrorCode.none, topics=[topic])


CODES = [
    ErrorCode.none,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.invalid_update_version,
    ErrorCode.ineligible_replica,
]


@pytest.mark.parametrize("code", CODES)
def test_an_answer_settles_what_was_asked(code):
    partition = leader()
    proposals = IsrProposals(lambda changed: None)
    proposals.submit(partition)
    asked = proposals.open()
    assert [(it.leader_epoch, it.isr) for it in asked] == [(3, (1, 2))]
    proposals.take(asked, answered(code))
    assert proposals.open() == []


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("changes", [{"leader_epoch": 4}, {"proposed_isr": (1, 3)}])
def test_later_proposals_stay_open(code, changes):
    """Otherwise a refusal for the former epoch would block the leader for good."""
    partition = leader()
    proposals = IsrProposals(lambda changed: None)
    proposals.submit(partition)
    asked = proposals.open()
    vars(partition).update(changes)
    proposals.submit(partition)
    proposals.take(asked, answered(code))
    (still,) = proposals.open()
    assert still.isr == partition.proposed_isr


def test_a_proposal_of_a_topic_without_an_id_is_withdrawn_and_can_be_made_again():
    partition = leader()
    partition.topic_id = None
    withdrawn = []

    def withdraw():
        withdrawn.append(partition.proposed_isr)
        partition.proposed_isr = None

    partition.withdraw_proposal = withdraw
    proposals = IsrProposals(lambda changed: None)
    proposals.submit(partition)
    assert proposals.open() == []
    assert withdrawn == [(1, 2)]
    partition.topic_id, partition.proposed_isr = TOPIC_ID, (1, 2)
    proposals.submit(partition)
    assert [it.isr for it in proposals.open()] == [(1, 2)]


def test_many_proposals_go_in_batches_and_the_undecided_wait_behind_the_others():
    proposals = IsrProposals(lambda changed: None)
    for index in range(2 * BATCH + 1):
        proposals.submit(leader(index))
    first = proposals.open()
    assert [it.partition.key.partition for it in first] == list(range(BATCH))
    # The controller decides only the first proposal.
    proposals.take(first, answered(ErrorCode.none))
    assert proposals.put_back(first)
    second = proposals.open()
    assert second[0].partition.key.partition == BATCH
    # Proposals of partitions led elsewhere are dropped, one batch at a time.
    for each in second:
        each.partition.is_leader = False
    assert proposals.open() == []
    assert proposals.waiting == BATCH
    assert len(proposals.open()) == BATCH
