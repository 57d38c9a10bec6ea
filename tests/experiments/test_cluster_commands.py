"""What a controller says, and what remains of it when waiting commands are merged."""

from __future__ import annotations

from broker.protocol.api_keys import ApiKey
from experiments.cluster.commands import Leadership, batch, merged
from experiments.cluster.stage import Address, Node

LISR, UPDATE = ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA
NODES = [Node(number=n, data=Address("h", n), control=Address("h", n)) for n in (0, 1)]


def led(partition: int, leader: int, epoch: int) -> Leadership:
    return Leadership(
        topic="t",
        partition=partition,
        leader=leader,
        leader_epoch=epoch,
        isr=(1, 0),
        replicas=(1, 0),
    )


def test_leaders_are_told_before_clients_are_told_of_them() -> None:
    assert [it.api_key for it in batch([led(0, 1, 1)])] == [LISR, UPDATE]


def test_what_waits_is_one_request_of_each_kind_with_the_newest_word() -> None:
    waiting = [
        *batch([led(0, 1, 1)])[1:],
        *batch([led(1, 1, 1)]),
        *batch([led(0, 0, 2)]),
    ]
    first, second = merged(waiting)
    assert (first.api_key, second.api_key) == (LISR, UPDATE)
    assert {it.partition: it.leader_epoch for it in first.states} == {1: 1, 0: 2}
    # Partition 0 was told of twice; its first word is overtaken.
    assert {it.partition: it.leader_epoch for it in second.states} == {0: 2, 1: 1}
    assert merged(merged(waiting)) == merged(waiting)


def test_a_request_tells_every_partition_of_every_topic() -> None:
    command = batch([led(0, 1, 4), led(1, 0, 3)])[0]
    body = command.body(NODES)
    (topic,) = body.topic_states
    states = [(it.partition_index, it.leader, it.isr) for it in topic.partition_states]
    assert states == [(0, 1, (1, 0)), (1, 0, (1, 0))]
