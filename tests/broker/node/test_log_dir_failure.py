"""A log directory fails and the others are served (KIP-112); the last one is fatal.

Clients receive KAFKA_STORAGE_ERROR for the partitions of that directory only. A restart
after the disk has recovered has every acknowledged record.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from broker.coordination.registry_file import FILE_NAME
from broker.disk.memory import Faults, MemoryStorage
from broker.log.flushing import flush
from broker.log.log import Log
from broker.node.log_dir_metrics import log_dir_metrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode, LogDirsLost
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    fetch_fields,
    produce_fields,
    values_of,
)

BAD, GOOD = "/data/bad", "/data/good"
SETTINGS = {"log.dirs": f"{BAD},{GOOD}", "offsets.topic.num.partitions": "2"}
FAULT = ErrorCode.kafka_storage_error


class BadDisk(Faults):
    """Every counted call on paths below ``bad`` fails once ``broken`` is set."""

    def __init__(self, *bad: str, error: int = errno.EIO) -> None:
        super().__init__(reads=True)
        self.bad = bad
        self.error = error
        self.broken = False

    def count(self, call: str) -> None:
        self.calls += 1
        if self.broken and any(f" {bad}" in call for bad in self.bad):
            raise OSError(self.error, "broken", call)


def filled(*bad: str, error: int = errno.EIO) -> World:
    """Return a broker with a record in each of four partitions, on two disks."""
    world = World(SETTINGS, MemoryStorage(BadDisk(*bad, error=error)))
    world.create("t", 4)
    for partition in range(4):
        assert world.produce("t", b"v", partition=partition).error_code is NONE
    return world


def break_disk(world: World) -> None:
    faults = world.storage.faults
    assert isinstance(faults, BadDisk)
    faults.broken = True


def homes(world: World) -> dict[int, str]:
    return {
        index: home_of(log)
        for (topic, index), log in world.broker.logs.logs.items()
        if topic == "t"
    }


def flush_one(world: World, partition: int) -> None:
    flush(world.broker.logs.logs["t", partition])


def touch_by_append(world: World, partition: int) -> None:
    assert world.produce("t", b"w", partition=partition).error_code is FAULT


def touch_by_flush(world: World, partition: int) -> None:
    with pytest.raises(Exception, match="broken"):
        flush_one(world, partition)


def touch_by_upkeep(world: World, partition: int) -> None:
    world.pass_ms(120_000)


@pytest.mark.parametrize("touch", [touch_by_append, touch_by_flush, touch_by_upkeep])
def test_partitions_of_the_failed_directory_are_refused_and_others_served(
    touch: Callable[[World, int], None],
) -> None:
    world = filled(BAD)
    where = homes(world)
    lost = [index for index, home in where.items() if home == BAD]
    kept = [index for index, home in where.items() if home == GOOD]
    assert len(lost) == len(kept) == 2
    break_disk(world)
    touch(world, lost[0])
    world.pass_ms(0)
    for index in lost:
        assert world.produce("t", b"w", partition=index).error_code is FAULT
        fetched = fetch(world, index)
        assert (fetched.error_code, fetched.records or b"") == (FAULT, b"")
    for index in kept:
        assert world.produce("t", b"w", partition=index).base_offset == 1
        assert [value for _, value in values_of(fetch(world, index).records)] == [
            b"v",
            b"w",
        ]
    world.broker.replicas.check()
    answer = world.send(ApiKey.METADATA, 12, topics=[{"name": "t"}])
    leaders = {
        each.partition_index: each.leader_id for each in answer.topics[0].partitions
    }
    assert leaders == dict.fromkeys(lost, -1) | dict.fromkeys(kept, 0)


def test_the_failed_directory_is_told_of_where_operators_look() -> None:
    world = filled(BAD)
    break_disk(world)
    touch_by_append(world, next(n for n, home in homes(world).items() if home == BAD))
    world.pass_ms(0)
    answer = world.send(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    told = {each.log_dir: each for each in answer.results}
    assert (told[BAD].error_code, told[BAD].topics) == (FAULT, ())
    assert told[GOOD].error_code is NONE
    assert told[GOOD].topics
    metrics = {
        (each.name, each.labels.get("logDirectory")): each.value
        for each in log_dir_metrics(world.broker.logs, world.broker.storage)
        if each is not None and each.name.startswith("kafka_")
    }
    assert metrics == {
        ("kafka_log_logmanager_offlinelogdirectorycount", None): 1,
        ("kafka_log_logmanager_logdirectoryoffline", BAD): 1,
        ("kafka_log_logmanager_logdirectoryoffline", GOOD): 0,
    }


def test_new_topics_go_to_what_is_left_and_old_ones_are_not_deleted() -> None:
    world = filled(BAD)
    break_disk(world)
    touch_by_append(world, next(n for n, home in homes(world).items() if home == BAD))
    world.pass_ms(0)
    world.create("new", 3)
    assert all(
        home_of(log) == GOOD
        for (name, _), log in world.broker.logs.logs.items()
        if name == "new"
    )
    answer = world.send(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": "t"}], timeout=SECONDS_30
    )
    assert answer.responses[0].error_code is FAULT
    # Clients no longer see the topic; its remaining logs go when the disk is back.
    after = World(SETTINGS, healed(world))
    assert set(after.broker.coordinator.admin.topics) == {"new"}
    assert {name for name, _ in after.broker.logs.logs} == {"new"}


def test_a_restart_on_a_mended_disk_has_all_that_was_acknowledged() -> None:
    world = filled(BAD)
    break_disk(world)
    touch_by_append(world, next(n for n, home in homes(world).items() if home == BAD))
    world.pass_ms(0)
    after = World(SETTINGS, healed(world))
    for index in range(4):
        assert values_of(fetch(after, index).records)[0] == (0, b"v")
        assert after.produce("t", b"w", partition=index).error_code is NONE
    after.check()


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_start_goes_on_without_a_directory_that_cannot_be_read(error: int) -> None:
    before = filled(BAD)
    faults = BadDisk(BAD, error=error)
    faults.broken = True
    world = World(SETTINGS, before.storage.after_kill(faults))
    assert world.broker.log_dirs.online == [GOOD]
    for index, home in homes(before).items():
        code = FAULT if home == BAD else NONE
        assert world.produce("t", b"w", partition=index).error_code is code
    # No empty log is created while the real one is unreachable.
    assert all(home == GOOD for home in homes(world).values())
    assert len(homes(world)) == 2


def test_a_shortage_costs_no_directory() -> None:
    world = filled(BAD, GOOD, error=errno.ENOSPC)
    break_disk(world)
    assert world.produce("t", b"w").error_code is FAULT
    world.pass_ms(120_000)
    assert world.broker.log_dirs.online == [BAD, GOOD]
    world.storage.faults = Faults()
    world.pass_ms(120_000)
    assert world.produce("t", b"w").error_code is NONE


def test_the_last_directory_that_fails_ends_the_broker() -> None:
    world = filled(BAD, GOOD)
    break_disk(world)
    for index in range(4):
        assert world.produce("t", b"w", partition=index).error_code is FAULT
    with pytest.raises(LogDirsLost, match=r"/data/bad.*; /data/good.*"):
        world.pass_ms(0)


def test_a_start_without_any_directory_is_refused_and_states_the_reason() -> None:
    faults = BadDisk(BAD, GOOD)
    faults.broken = True
    with pytest.raises(ConfigError, match=r"log.dirs: .*broken"):
        World(SETTINGS, MemoryStorage(faults))


def test_the_registry_goes_on_with_the_copies_that_can_be_written() -> None:
    world = filled(BAD)
    break_disk(world)
    world.create("later")
    world.pass_ms(0)
    assert world.broker.log_dirs.online == [GOOD]
    storage = healed(world)
    assert storage.open(f"{BAD}/{FILE_NAME}").size() > 0
    assert "later" in World(SETTINGS, storage).broker.coordinator.admin.topics


def test_requests_that_wait_for_a_failed_partition_are_answered() -> None:
    world = filled(BAD)
    (bad, *_) = [n for n, home in homes(world).items() if home == BAD]
    waiting = world.start(
        ApiKey.FETCH, 12, **fetch_fields_of(bad, offset=1, max_wait=30_000)
    )
    assert not waiting.done
    break_disk(world)
    touch_by_append(world, bad)
    world.pass_ms(0)
    assert waiting.done
    assert waiting.answer.responses[0].partitions[0].error_code is FAULT


@pytest.mark.parametrize("seed", range(5))
def test_groups_whose_offsets_were_there_find_another_coordinator_or_none(
    seed: int,
) -> None:
    world = filled(BAD)
    world.send(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
    world.pass_ms(0)
    offsets_logs = {
        index: home_of(log)
        for (name, index), log in world.broker.logs.logs.items()
        if name == "__consumer_offsets"
    }
    assert set(offsets_logs.values()) == {BAD, GOOD}
    break_disk(world)
    rng = random.Random(seed)
    codes = set()
    for number in range(10):
        group = f"g{number}-{rng.random()}"
        codes.add(commit(world, group))
        world.pass_ms(0)
    assert NONE in codes
    assert codes - {NONE} <= {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.unknown_server_error,
        FAULT,
    }
    world.broker.groups.check()


@pytest.mark.parametrize("version", range(3, 12))
def test_producers_older_than_the_storage_error_are_sent_to_another_leader(
    version: int,
) -> None:
    """Kafka's ProduceRequest.json: v4 is for requesters that expect error 56."""
    world = filled(BAD, GOOD)
    break_disk(world)
    fields = produce_fields({("t", 0): batch(b"w")})
    answer = world.send(ApiKey.PRODUCE, version, **fields)
    code = answer.responses[0].partition_responses[0].error_code
    assert code is (FAULT if version >= 4 else ErrorCode.not_leader_or_follower)


@pytest.mark.parametrize("version", range(4, 13))
def test_consumers_older_than_the_storage_error_are_sent_to_another_leader(
    version: int,
) -> None:
    """Kafka's FetchRequest.json: v6 is for requesters that expect error 56."""
    world = filled(BAD)
    lost = next(index for index, home in homes(world).items() if home == BAD)
    break_disk(world)
    touch_by_append(world, lost)
    world.pass_ms(0)
    answer = world.send(ApiKey.FETCH, version, **fetch_fields({("t", lost): 0}))
    code = answer.responses[0].partitions[0].error_code
    assert code is (FAULT if version >= 6 else ErrorCode.not_leader_or_follower)


# ---- helpers ----


def home_of(log: Log) -> str:
    return log.directory.rpartition("/")[0]


def commit(world: World, group: str) -> ErrorCode:
    committed = {"partition_index": 0, "committed_offset": 1}
    topic = {"name": "t", "partitions": [committed]}
    answer = world.send(
        ApiKey.OFFSET_COMMIT, 8, group_id=group, generation_id=-1, topics=[topic]
    )
    code: ErrorCode = answer.topics[0].partitions[0].error_code
    return code


def healed(world: World) -> MemoryStorage:
    return world.storage.after_kill(Faults())


def fetch_fields_of(partition: int, *, offset: int, max_wait: int) -> dict[str, object]:
    return fetch_fields({("t", partition): offset}, max_wait_ms=max_wait)


def fetch(world: World, partition: int):  # type: ignore[no-untyped-def] # kio's row
    fields = fetch_fields_of(partition, offset=0, max_wait=0)
    return world.send(ApiKey.FETCH, 12, **fields).responses[0].partitions[0]
