"""Followers that the high watermark waits for: the ISR, and followers about to join.

Expected values are derived by hand from Kafka 3.9's
``Partition.maybeIncrementLeaderHW`` and ``ReplicaState.isCaughtUp``. Broker 0 leads, 1
and 2 follow. A follower that has lagged for more than ten seconds does not keep up.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from broker.cluster.follower import SyncRules
from broker.cluster.partition import Partition
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.log import witness

T: Final = TopicPartition("t", 0)
SECOND: Final = 10**9
LAG_S: Final = 10
# `Any`, since the functions of `witness` have no annotations.
LOGS: Final[Any] = witness


class Leader:
    """Broker 0 as the leader of a partition, and the fetches of its followers."""

    def __init__(self, *isr: int, min_insync: int = 1) -> None:
        self.now_ns = 100 * SECOND
        self.alive = {1, 2}
        self.partition = Partition(
            T,
            None,
            LOGS.open_log(),
            local_id=0,
            min_insync=lambda: min_insync,
            sync=SyncRules(
                now_ns=lambda: self.now_ns,
                lag_ns=lambda: LAG_S * SECOND,
                is_alive=lambda broker: broker in self.alive,
            ),
        )
        self.epoch = 0
        self.elect(*isr)

    def elect(self, *isr: int) -> None:
        """Make the broker the leader, in a new epoch."""
        self.epoch += 1
        word: Any = SimpleNamespace(
            controller_epoch=1,
            leader=0,
            leader_epoch=self.epoch,
            isr=isr,
            partition_epoch=self.epoch,
            replicas=(0, 1, 2),
            adding_replicas=(),
            removing_replicas=(),
        )
        self.partition.make_leader(word)

    def append(self, count: int, acks: int = 1) -> None:
        records = LOGS.batch([b"x"] * count)
        self.partition.append(records, acks, witness.NOW_MS)

    def fetched(self, replica: int, offset: int) -> int:
        """Fetch as a follower from an offset; return the high watermark after it.

        No ISR is proposed.
        """
        self.partition.note_follower_fetch(replica, offset, 0)
        self.partition.advance_high_watermark()
        return self.partition.high_watermark

    def wait(self, seconds: int) -> None:
        self.now_ns += seconds * SECOND


def test_a_follower_that_never_kept_up_is_not_waited_for() -> None:
    leader = Leader(0, 1)
    leader.append(4)
    assert leader.fetched(2, 0) == 0
    assert leader.fetched(1, 3) == 3
    # Replica 2 has now caught up.
    assert leader.fetched(2, 4) == 3
    leader.append(2)
    assert leader.fetched(1, 6) == 4
    assert leader.fetched(2, 5) == 5
    assert leader.fetched(2, 6) == 6


def test_a_leader_alone_waits_for_followers_that_keep_up() -> None:
    leader = Leader(0)
    leader.append(2)
    assert leader.partition.high_watermark == 2
    assert leader.fetched(1, 2) == 2
    leader.append(1, acks=-1)
    assert leader.partition.high_watermark == 2
    assert leader.partition.acknowledged(3) is None
    assert leader.fetched(1, 3) == 3
    assert leader.partition.acknowledged(3) is ErrorCode.none


def test_a_dead_follower_is_not_waited_for() -> None:
    leader = Leader(0)
    assert leader.fetched(1, 0) == 0
    leader.alive = {2}
    leader.append(1)
    assert leader.partition.high_watermark == 1


def test_in_the_isr_even_the_dead_are_waited_for() -> None:
    leader = Leader(0, 1)
    leader.alive = set()
    leader.append(1)
    leader.wait(100)
    leader.append(1)
    assert leader.partition.high_watermark == 0
    assert leader.fetched(1, 2) == 2


def test_a_follower_behind_for_the_lag_time_is_waited_for_no_longer() -> None:
    leader = Leader(0)
    assert leader.fetched(1, 0) == 0
    leader.append(1)
    leader.wait(LAG_S)
    leader.append(1)
    assert leader.partition.high_watermark == 0
    leader.now_ns += 1
    # Time alone does not advance the high watermark; the next event does, as in Kafka.
    assert leader.partition.high_watermark == 0
    leader.append(1)
    assert leader.partition.high_watermark == 3


def test_a_follower_that_fetched_long_ago_is_not_waited_for() -> None:
    leader = Leader(0)
    leader.append(1)
    assert leader.fetched(1, 1) == 1
    leader.wait(5 * LAG_S)
    leader.append(1)
    assert leader.partition.high_watermark == 2


def test_a_new_epoch_forgets_followers_that_kept_up_outside_the_isr() -> None:
    leader = Leader(0)
    assert leader.fetched(1, 0) == 0
    leader.elect(0)
    leader.append(1)
    assert leader.partition.high_watermark == 1


def test_the_time_of_the_isr_begins_with_the_epoch() -> None:
    leader = Leader(0, 1, 2)
    leader.append(1)
    leader.wait(LAG_S // 2)
    assert leader.fetched(2, 1) == 0
    leader.wait(LAG_S // 2)
    assert not leader.partition.propose_shrinking()
    leader.now_ns += 1
    assert leader.partition.propose_shrinking()
    assert leader.partition.proposed_isr == (0, 2)


def test_the_dead_are_not_proposed() -> None:
    leader = Leader(0)
    leader.alive = {2}
    assert leader.fetched(1, 0) == 0
    assert not leader.partition.propose_expansion(1)
    leader.alive = {1}
    assert leader.partition.propose_expansion(1)


def test_a_refused_follower_is_waited_for_while_it_keeps_up() -> None:
    leader = Leader(0)
    assert leader.fetched(1, 0) == 0
    assert leader.partition.propose_expansion(1)
    leader.partition.withdraw_proposal()
    assert leader.partition.maximal_isr == (0,)
    leader.append(1)
    assert leader.partition.high_watermark == 0


def test_a_follower_behind_another_proposal_is_waited_for() -> None:
    """Otherwise the high watermark could pass the follower during the proposal."""
    leader = Leader(0)
    assert leader.fetched(1, 0) == leader.fetched(2, 0) == 0
    assert leader.partition.propose_expansion(1)
    leader.append(3)
    assert leader.fetched(1, 3) == 0
    assert leader.fetched(2, 2) == 2
    assert leader.partition.accept_isr(1, (0, 1), 2)
    assert leader.partition.propose_expansion(2)


def test_too_few_are_not_too_few_with_who_has_been_proposed() -> None:
    """During a proposal, acks=-1 is checked against Kafka's maximal ISR."""
    leader = Leader(0, 1, min_insync=2)
    leader.append(1)
    assert leader.fetched(1, 1) == 1
    leader.elect(0)
    too_few = ErrorCode.not_enough_replicas_after_append
    assert leader.partition.acknowledged(1) is too_few
    leader.fetched(1, 1)
    assert leader.partition.propose_expansion(1)
    assert leader.partition.acknowledged(1) is ErrorCode.none
