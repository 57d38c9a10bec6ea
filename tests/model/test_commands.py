"""What the model's controller says, and what remains of it when it is merged."""

from __future__ import annotations

from broker.protocol.api_keys import ApiKey
from broker.protocol.topic_partition import TopicPartition
from experiments.worlds.model.commands import Leadership, batch, merged

LISR, UPDATE = ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA


def led(partition: int, leader: int) -> Leadership:
    return Leadership(key=TopicPartition("t", partition), leader=leader)


def test_leaders_are_told_before_clients_are_told_of_them() -> None:
    assert [it.api_key for it in batch([led(0, 1)])] == [LISR, UPDATE]


def test_what_waits_is_one_request_of_each_kind_with_the_newest_word() -> None:
    waiting = [*batch([led(0, 1)])[1:], *batch([led(1, 1)]), *batch([led(0, 0)])]
    first, second = merged(waiting)
    assert (first.api_key, second.api_key) == (LISR, UPDATE)
    assert {it.key.partition: it.leader for it in first.states} == {1: 1, 0: 0}
    # Partition 0 was told of twice; its first word is overtaken.
    assert {it.key.partition: it.leader for it in second.states} == {0: 0, 1: 1}
    assert merged(merged(waiting)) == merged(waiting)
