"""Topics on a full disk: requests fail as a whole, and succeed once there is room.

The disk is full from a certain call on, so the failed request cannot be undone on the
disk either. The write that finds the disk full may have written some bytes.
"""

from __future__ import annotations

import errno
import os

import pytest

from broker.disk.memory import Faults
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30, new_topic, values_of

ONE, TWO = {"log.dirs": "/data"}, {"log.dirs": "/data/one,/data/two"}
FULL = ErrorCode.kafka_storage_error


class NoRoom(Faults):
    """Fail each call that takes room, from the ``full_at``-th such call on."""

    def __init__(self, full_at: int, short: int) -> None:
        super().__init__(short=short)
        self._full_at = full_at

    @property
    def reached(self) -> bool:
        return self.calls >= self._full_at

    def count(self, call: str) -> None:
        if call.startswith(("create ", "write ", "mkdir ", "sync ")):
            self.calls += 1
            if self.reached:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), call)


def create(world: World, name: str, partitions: int) -> ErrorCode:
    topics = [new_topic(name, partitions)]
    answer = world.send(ApiKey.CREATE_TOPICS, 7, topics=topics, timeout=SECONDS_30)
    code: ErrorCode = answer.topics[0].error_code
    return code


def extend(world: World, name: str, count: int) -> ErrorCode:
    topics = [{"name": name, "count": count}]
    answer = world.send(ApiKey.CREATE_PARTITIONS, 3, topics=topics)
    code: ErrorCode = answer.results[0].error_code
    return code


def delete(world: World, name: str) -> ErrorCode:
    topics = [{"name": name}]
    answer = world.send(ApiKey.DELETE_TOPICS, 6, topics=topics, timeout=SECONDS_30)
    code: ErrorCode = answer.responses[0].error_code
    return code


def known(world: World) -> dict[str, int]:
    """Return the partition counts of a Metadata answer; all partitions have leaders."""
    answer = world.send(ApiKey.METADATA, 12, topics=None)
    for topic in answer.topics:
        assert [each.error_code for each in topic.partitions] == [NONE] * len(
            topic.partitions
        )
    return {topic.name: len(topic.partitions) for topic in answer.topics}


def serves(world: World, name: str, partitions: int) -> None:
    """Assert that a topic has a number of partitions, and that each takes records."""
    assert known(world)[name] == partitions
    for index in range(partitions):
        assert world.produce(name, b"new", partition=index).error_code is NONE
    world.check()


@pytest.mark.parametrize("settings", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("short", [0, 7, 1 << 20], ids=["0", "7", "all"])
def test_a_topic_that_finds_no_room_is_not_half_there(
    short: int, settings: dict[str, str]
) -> None:
    full_at, refused = 0, True
    while refused:
        world = World(settings)
        assert create(world, "old", 1) is NONE
        faults = NoRoom(full_at := full_at + 1, short)
        world.storage.faults = faults
        outcome = create(world, "t", 2)
        refused = outcome is not NONE
        if refused:
            assert (outcome, known(world)) == (FULL, {"old": 1}), full_at
            # The request fails as long as there is no room.
            assert create(world, "t", 2) is FULL
            assert world.produce("t", b"x").error_code is not NONE
        world.check()
        # A restart at this point finds the whole topic or none of it.
        after = World(settings, world.storage.after_kill())
        if "t" in known(after):
            serves(after, "t", 2)
        else:
            assert refused
            assert create(after, "t", 2) is NONE
        world.storage.faults = Faults()
        if refused:
            assert create(world, "t", 2) is NONE, full_at
        serves(world, "t", 2)
        after = World(settings, world.storage.after_kill())
        found = values_of(after.fetch("t").records)
        assert [value for _, value in found] == [b"new"]
        serves(after, "t", 2)
        serves(after, "old", 1)
    assert full_at > 5, "no room was ever wanted"


@pytest.mark.parametrize("settings", [ONE, TWO], ids=["one", "two"])
def test_partitions_that_find_no_room_are_not_half_there(
    settings: dict[str, str],
) -> None:
    full_at, refused = 0, True
    while refused:
        world = World(settings)
        assert create(world, "t", 1) is NONE
        serves(world, "t", 1)
        world.storage.faults = NoRoom(full_at := full_at + 1, short=7)
        outcome = extend(world, "t", 3)
        refused = outcome is not NONE
        if refused:
            assert (outcome, known(world)) == (FULL, {"t": 1}), full_at
            assert extend(world, "t", 3) is FULL
        world.check()
        after = World(settings, world.storage.after_kill())
        serves(after, "t", known(after)["t"])
        assert known(after)["t"] in ((1, 3) if refused else (3,))
        world.storage.faults = Faults()
        if refused:
            assert extend(world, "t", 3) is NONE, full_at
        serves(world, "t", 3)
        serves(World(settings, world.storage.after_kill()), "t", 3)
    assert full_at > 5, "no room was ever wanted"


def test_a_deletion_without_room_is_done_when_there_is() -> None:
    full_at, refused = 0, True
    while refused:
        world = World(ONE)
        assert create(world, "t", 2) is NONE
        serves(world, "t", 2)
        world.storage.faults = NoRoom(full_at := full_at + 1, short=7)
        outcome = delete(world, "t")
        refused = outcome is not NONE
        if refused:
            assert outcome is FULL
        world.check()
        world.storage.faults = Faults()
        if "t" in known(world):
            assert delete(world, "t") is NONE
        assert create(world, "t", 3) is NONE, full_at
        serves(world, "t", 3)
        after = World(ONE, world.storage.after_kill())
        found = values_of(after.fetch("t").records)
        assert [value for _, value in found] == [b"new"]
    assert full_at > 1, "no room was ever wanted"


class NoDirectories(Faults):
    """Fail each call that makes a directory."""

    def count(self, call: str) -> None:
        if call.startswith("mkdir "):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), call)


def test_a_replica_that_a_start_has_no_room_for_is_made_when_there_is() -> None:
    world = World(ONE)
    assert create(world, "t", 1) is NONE
    storage = world.storage.after_kill()
    for name in storage.names("/data/t-0"):
        storage.remove(f"/data/t-0/{name}")
    storage.remove_directory("/data/t-0")
    storage.faults = NoDirectories()
    after = World(ONE, storage)
    # The checkpoints are written in this time, and the replica is requested again.
    after.pass_ms(120_000)
    assert after.produce("t", b"x").error_code is FULL
    storage.faults = Faults()
    after.pass_ms(60_000)
    serves(after, "t", 1)
