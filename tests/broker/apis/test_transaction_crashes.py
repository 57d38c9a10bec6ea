"""Transactions after a crash at each call to the disk in turn.

Two transactions write to two partitions; one is committed and one is aborted. After the
restart the client initializes its producer again, which ends an open transaction. A
consumer of committed records then sees all records of a transaction or none, and all
records of a transaction whose commit was answered.
"""

from __future__ import annotations

import random

import pytest

from broker.disk.memory import Crashed, Faults, MemoryStorage
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import World
from tests.broker.apis.transaction_client import SETTINGS, TransactionClient, committed

NONE = ErrorCode.none
KEYS = (TopicPartition("t", 0), TopicPartition("t", 1))
VALUES = {True: b"committed", False: b"aborted"}


class Story:
    """The two transactions, and their answered outcomes."""

    def __init__(self, storage: MemoryStorage, protocol: int) -> None:
        self.storage = storage
        self.is_second = protocol == 2
        self.has_topic = False
        self.answered: set[bytes] = set()

    def run(self) -> bool:
        """Run the transactions; return whether they ended without a crash."""
        try:
            self._run()
        except Crashed:
            return False
        return True

    def _run(self) -> None:
        world = World(SETTINGS, self.storage)
        world.create("t", 2)
        self.has_topic = True
        client = TransactionClient(world)
        client.begin()
        for is_commit, value in VALUES.items():
            if not self.is_second:
                assert set(client.add(*KEYS).values()) == {NONE}
            for key in KEYS:
                version = 12 if self.is_second else 11
                assert client.produce(key, value, version) is NONE
            assert client.end(is_commit, 5 if self.is_second else 4) is NONE
            self.answered.add(value)
            world.pass_ms(0)


@pytest.mark.parametrize("protocol", [1, 2])
@pytest.mark.parametrize("loss", ["kill", "power"])
def test_a_transaction_is_all_or_nothing_over_a_crash_at_any_call(
    loss: str, protocol: int
) -> None:
    fail_at = seen = 0
    while True:
        fail_at += 1
        story = Story(MemoryStorage(Faults(fail_at, crash=True)), protocol)
        if story.run():
            break
        if not story.has_topic:
            continue
        rng = random.Random(fail_at)
        disk = (
            story.storage.after_kill()
            if loss == "kill"
            else story.storage.after_power_loss(rng)
        )
        world = World(SETTINGS, disk)
        client = TransactionClient(world)
        client.begin()
        world.pass_ms(0)
        found = [committed(world, key) for key in KEYS]
        assert found[0] == found[1], (fail_at, found)
        assert found[0] in ([], [VALUES[True]]), (fail_at, found)
        if VALUES[True] in story.answered:
            assert found[0] == [VALUES[True]], (fail_at, found)
        seen += 1
        world.check()
    assert seen > 30, "the faults were not reached"


def test_a_transaction_that_nobody_ends_is_aborted_after_its_time_out() -> None:
    world = World(SETTINGS)
    world.create("t", 2)
    client = TransactionClient(world)
    client.begin()
    assert set(client.add(*KEYS).values()) == {NONE}
    assert client.produce(KEYS[0], b"lost") is NONE
    after = world.restarted()
    after.pass_ms(70_001)
    assert [committed(after, key) for key in KEYS] == [[], []]
    client.world = after
    assert client.produce(KEYS[0], b"late") is ErrorCode.invalid_producer_epoch
