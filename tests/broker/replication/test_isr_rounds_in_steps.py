"""Ten thousand partitions lose a follower at once, and all steps remain short.

The leader finds lagging followers, proposes ISRs, and applies the controller's answers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from broker.protocol.errors import ErrorCode
from broker.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)
from broker.protocol.topic_partition import TopicPartition
from broker.replication.isr_changes import IsrExpiration, IsrProposals
from tests.fuzzing.starvation import StarvationProbe

PARTITIONS = 10_000
CALLS_MAX = 8_000
TOPIC_ID = UUID(int=1)


class Led:
    """A partition led by this broker; its follower 2 has stopped fetching."""

    leader_epoch = 3
    partition_epoch = 5
    topic_id = TOPIC_ID
    is_leader = True

    def __init__(self, index: int) -> None:
        self.key = TopicPartition("t", index)
        self.isr: tuple[int, ...] = (1, 2)
        self.proposed_isr: tuple[int, ...] | None = None

    def propose_shrinking(self) -> bool:
        """Propose an ISR of the leader alone."""
        self.proposed_isr = (1,)
        return True

    def accept_isr(
        self, epoch: int, isr: tuple[int, ...], partition_epoch: int
    ) -> bool:
        """Apply the controller's decision."""
        self.isr, self.proposed_isr = isr, None
        return True


def decided(request: AlterPartitionRequest) -> AlterPartitionResponse:
    """Return the response of a controller that accepts all proposals."""
    (topic,) = request.topics
    rows = tuple(
        ResponsePartitionData(
            partition_index=each.partition_index,
            error_code=ErrorCode.none,
            leader_id=1,
            leader_epoch=each.leader_epoch,
            isr=each.new_isr,
            leader_recovery_state=0,
            partition_epoch=each.partition_epoch + 1,
        )
        for each in topic.partitions
    )
    answered = ResponseTopicData(topic_id=TOPIC_ID, partitions=rows)
    return AlterPartitionResponse(error_code=ErrorCode.none, topics=(answered,))


def test_no_step_of_many_isr_changes_is_long() -> None:
    probe = StarvationProbe()
    partitions: Any = [Led(index) for index in range(PARTITIONS)]
    changed: list[Any] = []
    proposals = IsrProposals(changed.append)
    expiration = IsrExpiration(lambda: iter(partitions), lambda: 30, proposals.submit)
    pieces = requests = 0
    with probe.counting():
        while expiration.next_ns() == 0:
            expiration.work(now_ns=1)
            probe.end("expiration")
            pieces += 1
        while asked := proposals.open():
            request = proposals.request(asked, 1, 7)
            probe.end("request")
            answer = decided(request)
            probe.begin()
            proposals.take(asked, answer)
            probe.end("answer")
            assert not proposals.put_back(asked)
            requests += 1
    assert pieces > PARTITIONS // 300
    assert requests > PARTITIONS // 600
    assert len(changed) == PARTITIONS == proposals.shrinks
    assert {each.isr for each in partitions} == {(1,)}
    assert max(probe.most_calls.values()) < CALLS_MAX


def test_no_step_is_long_when_many_partitions_are_led_elsewhere_by_now() -> None:
    probe = StarvationProbe()
    proposals = IsrProposals(lambda changed: None)
    partitions: Any = [
        SimpleNamespace(key=TopicPartition("t", n), is_leader=False, proposed_isr=(1,))
        for n in range(PARTITIONS)
    ]
    for each in partitions:
        proposals.submit(each)
    with probe.counting():
        while proposals.waiting:
            assert proposals.open() == []
            probe.end("dropped")
    assert max(probe.most_calls.values()) < CALLS_MAX
