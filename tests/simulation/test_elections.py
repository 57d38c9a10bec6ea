"""The scripted controller's decisions on proposed ISRs."""

from __future__ import annotations

from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from simulation.control.elections import Elections

KEY = TopicPartition("t", 0)


def test_a_proposal_whose_answer_was_lost_may_come_again() -> None:
    """Seed 840 of the swarm: the leader waited forever for another leader epoch."""
    elections = Elections(live={0, 1})
    elections.create(KEY, (0, 1))

    def propose(isr: tuple[int, ...]) -> ErrorCode:
        return elections.alter(KEY, leader_epoch=0, isr=isr, partition_epoch=0)

    assert propose((0,)) is ErrorCode.none
    decided = elections.states[KEY]
    assert (decided.isr, decided.partition_epoch) == ((0,), 1)
    assert propose((0,)) is ErrorCode.none
    assert elections.states[KEY] == decided
    assert propose((0, 1)) is ErrorCode.invalid_update_version
