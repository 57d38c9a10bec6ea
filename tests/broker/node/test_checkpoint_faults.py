"""A disk refuses a checkpoint file, at each call of its replacement in turn.

After a device error the directory is offline, as in Kafka; a shortage has no lasting
effect (Kafka takes the directory offline for both). In both cases every acknowledged
record is there after a power loss, and the periodic task writes the other files.
"""

from __future__ import annotations

import errno
import os
import random

import pytest

from broker.disk import checkpoints
from broker.disk.memory import Faults, MemoryStorage
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode, UncleanStop
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30, fetch_fields, values_of

BAD, GOOD = "/data/bad", "/data/good"
SETTINGS = {
    "log.dirs": f"{BAD},{GOOD}",
    "offsets.topic.num.partitions": "2",
    "log.flush.interval.messages": "1",
}
OFFSETS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.LOG_START_OFFSETS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.CLEANER_OFFSETS,
)
EPOCHS = checkpoints.LEADER_EPOCHS
ERRORS = (errno.EIO, errno.ENOSPC)
WRITE = 2
# Error, bytes that a refused write leaves in the file, and step.
REFUSALS = [
    *((error, 0, step) for error in ERRORS for step in range(5)),
    *((error, 7, WRITE) for error in ERRORS),
]


class FileFaults(Faults):
    """Refuses every call of the ``step``-th kind on a file below ``BAD``.

    The kinds are: create, truncate, write and sync the temporary file, and replace the
    checkpoint (or rename to it if it does not exist).
    """

    STEPS = (("create ",), ("truncate ",), ("write ",), ("sync ",), ("rename", "repl"))

    def __init__(self, name: str, step: int, error: int, short: int) -> None:
        super().__init__(short=short)
        self.name = name
        self.kinds = self.STEPS[step]
        self.error = error
        self.refused = 0

    def count(self, call: str) -> None:
        at_file = f" {BAD}/" in call and self.name in call
        if at_file and call.startswith(self.kinds):
            self.refused += 1
            raise OSError(self.error, os.strerror(self.error), call)


def filled() -> World:
    """Return a broker with records in two partitions, on two disks."""
    world = World(SETTINGS)
    world.create("t", 2)
    for partition in range(2):
        for value in (b"0", b"1", b"2"):
            assert world.produce("t", value, partition=partition).error_code is NONE
    return world


def homes(world: World) -> dict[str, int]:
    """Return the partition in each directory."""
    logs = world.broker.logs.logs
    return {logs[TopicPartition("t", index)].home: index for index in range(2)}


def delete_records(world: World, partition: int) -> ErrorCode:
    """Delete the first record, which writes the checkpoint of log starts."""
    wanted = {"partition_index": partition, "offset": 1}
    topic = {"name": "t", "partitions": [wanted]}
    answer = world.send(ApiKey.DELETE_RECORDS, 2, topics=[topic], timeout=SECONDS_30)
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def values(world: World, partition: int) -> list[bytes]:
    found = world.send(ApiKey.FETCH, 12, **fetch_fields({("t", partition): 1}))
    (topic,) = found.responses
    return [value for _, value in values_of(topic.partitions[0].records)]


def check_after_power_loss(
    world: World, acknowledged: dict[int, list[bytes]], starts: dict[int, int]
) -> None:
    """Start after a power loss and check that all acknowledged records are there."""
    for seed in range(2):
        left = world.storage.after_power_loss(random.Random(seed), Faults())
        after = World(SETTINGS, left)
        assert not after.broker.log_dirs.offline
        for partition, expected in acknowledged.items():
            assert values(after, partition)[: len(expected)] == expected
            log = after.broker.logs.logs[TopicPartition("t", partition)]
            assert log.log_start_offset >= starts[partition]
            assert after.produce("t", b"new", partition=partition).error_code is NONE
        after.check()


@pytest.mark.parametrize(("error", "short", "step"), REFUSALS)
@pytest.mark.parametrize("name", [*OFFSETS, EPOCHS])
def test_a_refused_checkpoint_loses_nothing_that_was_acknowledged(
    name: str, error: int, short: int, step: int
) -> None:
    world = filled()
    where = homes(world)
    acknowledged = {index: [b"1", b"2"] for index in range(2)}
    starts = dict.fromkeys(range(2), 0)
    faults = FileFaults(name, step, error, short)
    if name == EPOCHS:
        # The first flush of a new epoch writes this file.
        world.storage.faults = faults
        world.create("new", 2)
        for partition in range(2):
            world.produce("new", b"n", partition=partition)
    world.storage.faults = faults
    for partition in range(2):
        if delete_records(world, partition) is NONE:
            starts[partition] = 1
        if world.produce("t", b"3", partition=partition).error_code is NONE:
            acknowledged[partition].append(b"3")
    world.pass_ms(61_000)
    # A failure leaves the temporary file in place, so that it is created only once.
    assert faults.refused or step == 0
    good = where[GOOD]
    assert starts[good] == 1
    assert acknowledged[good] == [b"1", b"2", b"3"]
    is_shortage = error == errno.ENOSPC
    expected_offline = [] if is_shortage or not faults.refused else [BAD]
    assert list(world.broker.log_dirs.offline) == expected_offline
    check_after_power_loss(world, acknowledged, starts)
    # The task is alive and writes the other files.
    if world.produce("t", b"4", partition=good).error_code is NONE:
        acknowledged[good].append(b"4")
    world.pass_ms(61_000)
    written = checkpoints.read_offsets(world.storage, GOOD, checkpoints.HIGH_WATERMARKS)
    assert written[TopicPartition("t", good)] == 5
    if is_shortage:
        world.storage.faults = Faults()
        world.pass_ms(61_000)
        bad = where[BAD]
        assert world.produce("t", b"4", partition=bad).error_code is NONE
        world.pass_ms(61_000)
        log = world.broker.logs.logs[TopicPartition("t", bad)]
        written = checkpoints.read_offsets(
            world.storage, BAD, checkpoints.RECOVERY_POINTS
        )
        assert written[TopicPartition("t", bad)] == log.recovery_point > 0
    world.check()
    check_after_power_loss(world, acknowledged, starts)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", [*OFFSETS, checkpoints.CLEAN_SHUTDOWN])
def test_a_checkpoint_that_a_stop_cannot_write_makes_it_unclean(
    name: str, error: int
) -> None:
    world = filled()
    world.storage.faults = FileFaults(name, WRITE, error, 7)
    with pytest.raises(UncleanStop, match=BAD):
        world.broker.close()
    left = world.storage
    assert checkpoints.CLEAN_SHUTDOWN not in left.names(BAD)
    assert checkpoints.CLEAN_SHUTDOWN in left.names(GOOD)
    everything = {index: [b"1", b"2"] for index in range(2)}
    check_after_power_loss(world, everything, dict.fromkeys(range(2), 0))


def no_room(directories: tuple[str, ...], error: int) -> MemoryStorage:
    """Return a new disk that refuses ``meta.properties`` in these directories."""

    class Refusing(Faults):
        def count(self, call: str) -> None:
            of_file = call.startswith("write ") and checkpoints.META_PROPERTIES in call
            if of_file and any(f" {each}/" in call for each in directories):
                raise OSError(error, os.strerror(error), call)

    return MemoryStorage(Refusing(short=7))


@pytest.mark.parametrize("error", ERRORS)
def test_a_directory_that_cannot_be_claimed_is_offline(error: int) -> None:
    world = World(SETTINGS, no_room((BAD,), error))
    assert world.broker.log_dirs.online == [GOOD]
    world.create("t")
    assert world.produce("t", b"v").error_code is NONE
    # A start with free space claims the directory.
    after = World(SETTINGS, world.storage.after_kill(Faults()))
    assert after.broker.log_dirs.online == [BAD, GOOD]
    pairs = [
        checkpoints.read_properties(after.storage, each, checkpoints.META_PROPERTIES)
        for each in (BAD, GOOD)
    ]
    assert pairs[0]["cluster.id"] == pairs[1]["cluster.id"]


@pytest.mark.parametrize("error", ERRORS)
def test_a_start_that_can_claim_no_directory_is_refused(error: int) -> None:
    with pytest.raises(ConfigError, match=r"log\.dirs: .*meta\.properties"):
        World(SETTINGS, no_room((BAD, GOOD), error))
