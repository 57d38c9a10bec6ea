"""AlterReplicaLogDirs of a whole broker: answers, moves under load, completion."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    SECONDS_30,
    leader_and_isr,
    update_metadata,
    values_of,
)
from tests.broker.apis.test_access import STANDARD

ONE, TWO, THREE = "/data/one", "/data/two", "/data/three"
SETTINGS = {"log.dirs": f"{ONE},{TWO},{THREE}", "log.segment.bytes": "1000"}
KEY = TopicPartition("t", 0)


def moving(count: int = 20, **settings: str) -> World:
    """Return a broker with a topic in one of its directories."""
    world = World({**SETTINGS, **settings})
    world.broker.logs.preferred[KEY] = ONE
    world.create("t")
    for number in range(count):
        assert world.produce("t", b"value %d" % number).error_code is NONE
    return world


def alter(
    world: World, path: str, name: str = "t", index: int = 0, version: int = 2
) -> ErrorCode:
    topics = [{"name": name, "partitions": [index]}]
    dirs = [{"path": path, "topics": topics}]
    answer = world.send(ApiKey.ALTER_REPLICA_LOG_DIRS, version, dirs=dirs)
    (topic,) = answer.results
    (row,) = topic.partitions
    assert (topic.topic_name, row.partition_index) == (name, index)
    error: ErrorCode = row.error_code
    return error


def described(world: World) -> dict[str, list[tuple[bool, int]]]:
    """Return the replicas by directory: whether each is a future one, and its lag."""
    answer = world.send(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    return {
        each.log_dir: [(row.is_future_key, row.offset_lag) for row in topic.partitions]
        for each in answer.results
        for topic in each.topics
        if topic.name == "t"
    }


def home(world: World) -> str:
    return world.broker.logs.logs[KEY].home


def values(world: World) -> list[bytes]:
    return [value for _, value in values_of(bytes(read_all(world)))]


def read_all(world: World) -> bytes:
    found, offset = b"", 0
    while True:
        records = world.fetch("t", offset).records or b""
        if not records:
            return found
        found += records
        offset = values_of(found)[-1][0] + 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_replica_moves(version: int) -> None:
    world = moving()
    assert alter(world, TWO, version=version) is NONE
    assert described(world) == {ONE: [(False, 0)], TWO: [(True, 20)]}
    world.pass_ms(2000)
    assert described(world) == {TWO: [(False, 0)]}
    assert values(world) == [b"value %d" % number for number in range(20)]
    assert world.produce("t", b"more").base_offset == 20
    world.check()
    again = world.restarted()
    assert home(again) == TWO
    assert values(again)[-1] == b"more"


def test_records_are_produced_and_read_while_a_replica_moves() -> None:
    world = moving()
    assert alter(world, TWO) is NONE
    for number in range(20, 60):
        world.broker.upkeep_duty.run(world.now_ns)
        assert world.produce("t", b"value %d" % number).base_offset == number
        assert len(values(world)) == number + 1
    world.pass_ms(2000)
    assert home(world) == TWO
    assert values(world) == [b"value %d" % number for number in range(60)]
    world.check()


def test_answers_are_flushed_answers_during_a_move() -> None:
    world = moving(**{"log.flush.interval.messages": "1"})
    assert alter(world, TWO) is NONE
    for number in range(20, 40):
        assert world.produce("t", b"more", acks=-1).base_offset == number
        world.broker.upkeep_duty.run(world.now_ns)
    world.pass_ms(2000)
    log = world.broker.logs.logs[KEY]
    assert (log.home, log.recovery_point) == (TWO, 40)


def test_a_move_is_replaced_and_cancelled() -> None:
    world = moving()
    assert alter(world, TWO) is NONE
    assert alter(world, TWO) is NONE
    assert set(described(world)) == {ONE, TWO}
    assert alter(world, THREE) is NONE
    assert described(world) == {ONE: [(False, 0)], THREE: [(True, 20)]}
    assert alter(world, ONE) is NONE
    assert described(world) == {ONE: [(False, 0)]}
    world.pass_ms(2000)
    assert home(world) == ONE
    assert alter(world, THREE) is NONE
    world.pass_ms(2000)
    assert home(world) == THREE
    assert not world.broker.maintenance.failures


def test_a_partition_named_twice_moves_to_the_last_directory() -> None:
    world = moving()
    topics = [{"name": "t", "partitions": [0, 0]}]
    dirs = [{"path": path, "topics": topics} for path in (THREE, TWO)]
    answer = world.send(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    (topic,) = answer.results
    assert [row.error_code for row in topic.partitions] == [NONE]
    assert set(described(world)) == {ONE, TWO}


def test_directories_that_there_are_not() -> None:
    world = moving()
    for path in ("/data/four", "", "one", ONE + "/"):
        assert alter(world, path) is ErrorCode.log_dir_not_found
    world.broker.log_dirs.take_offline(THREE, OSError(errno.EIO, "broken"))
    world.pass_ms(0)
    assert alter(world, THREE) is ErrorCode.kafka_storage_error
    # The offline directory may contain a copy of the replica.
    assert alter(world, TWO) is ErrorCode.kafka_storage_error
    assert alter(world, ONE) is NONE


def test_names_too_long_for_a_copy() -> None:
    world = World(SETTINGS)
    name = "t" * 230
    world.create(name)
    assert alter(world, TWO, name) is ErrorCode.invalid_topic_exception


def test_a_partition_that_comes_later() -> None:
    world = World(SETTINGS)
    for directory in (TWO, THREE, ONE):
        name = directory.replace("/", "-")
        error = alter(world, directory, name)
        assert error is ErrorCode.unknown_topic_or_partition
        world.create(name)
        key = TopicPartition(name, 0)
        assert world.broker.logs.logs[key].home == directory


def test_a_replica_that_comes_later() -> None:
    world = World(SETTINGS)
    world.live(1)
    elsewhere = update_metadata(
        ("t", 0), leader=1, brokers={0: ("127.0.0.1", 9092), 1: ("127.0.0.1", 9093)}
    )
    assert world.command(ApiKey.UPDATE_METADATA, elsewhere).error_code is NONE
    assert alter(world, THREE) is ErrorCode.replica_not_available
    command = leader_and_isr(("t", 0), leader=0, leader_epoch=6)
    assert world.command(ApiKey.LEADER_AND_ISR, command).error_code is NONE
    assert home(world) == THREE


def test_a_move_goes_on_after_a_restart() -> None:
    world = moving()
    assert alter(world, TWO) is NONE
    for _ in range(2):
        world.broker.upkeep_duty.run(world.now_ns)
    again = world.restarted()
    assert set(described(again)) == {ONE, TWO}
    again.pass_ms(2000)
    assert described(again) == {TWO: [(False, 0)]}
    assert values(again) == [b"value %d" % number for number in range(20)]


def test_a_clean_stop_during_a_move() -> None:
    world = moving()
    assert alter(world, TWO) is NONE
    world.broker.upkeep_duty.run(world.now_ns)
    world.broker.close()
    again = world.restarted()
    again.pass_ms(2000)
    assert described(again) == {TWO: [(False, 0)]}
    assert len(values(again)) == 20


def test_a_copy_of_a_topic_that_was_deleted_and_created_again_is_removed() -> None:
    world = moving()
    assert alter(world, TWO) is NONE
    future = world.broker.logs.futures[KEY].directory
    left = world.storage.after_kill()
    file = left.open(f"{future}/partition.metadata")
    content = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    file.truncate(0)
    file.write(0, (content,), len(content))
    again = world.restarted(storage=left)
    assert set(described(again)) == {ONE}


def test_a_deleted_topic_ends_its_move() -> None:
    world = moving()
    assert alter(world, TWO) is NONE
    answer = world.send(ApiKey.DELETE_TOPICS, 5, topic_names=["t"], timeout=SECONDS_30)
    assert [each.error_code for each in answer.responses] == [NONE]
    world.pass_ms(120_000)
    assert not world.broker.logs.futures
    assert not world.broker.maintenance.failures
    for directory in (ONE, TWO):
        assert not [it for it in world.storage.names(directory) if it[:2] == "t-"]


def test_deleted_records_stay_deleted() -> None:
    world = moving()
    assert alter(world, TWO) is NONE
    world.broker.upkeep_duty.run(world.now_ns)
    world.send(
        ApiKey.DELETE_RECORDS,
        2,
        topics=[
            {"name": "t", "partitions": [{"partition_index": 0, "offset": 13}]},
        ],
        timeout=SECONDS_30,
    )
    world.pass_ms(2000)
    assert home(world) == TWO
    for each in (world, world.restarted()):
        assert each.broker.logs.logs[KEY].log_start_offset == 13
        assert each.fetch("t", 12).error_code is ErrorCode.offset_out_of_range


def test_retention_goes_on_during_a_move() -> None:
    world = moving(60, **{"log.retention.bytes": "1500"})
    assert alter(world, TWO) is NONE
    world.pass_ms(600_000)
    assert home(world) == TWO
    log = world.broker.logs.logs[KEY]
    assert log.log_start_offset > 0
    assert log.size_bytes <= 2500


def test_the_throttle_bounds_the_rate() -> None:
    """The second of two pieces waits until the first has left the quota's windows."""
    world = moving(0, **{"log.segment.bytes": "1000000"})
    for _ in range(20):
        assert world.produce("t", bytes(20_000)).error_code is NONE
    throttled(world, 1)
    assert alter(world, TWO) is NONE
    seconds = 0
    while home(world) == ONE:
        world.pass_ms(1000)
        seconds += 1
    assert 9 <= seconds <= 15
    assert len(values(world)) == 20


def throttled(world: World, bytes_per_s: int) -> None:
    answer = world.send(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[
            {
                "resource_type": 4,
                "resource_name": "0",
                "configs": [
                    {
                        "name": "replica.alter.log.dirs.io.max.bytes.per.second",
                        "config_operation": 0,
                        "value": str(bytes_per_s),
                    }
                ],
            }
        ],
    )
    assert [each.error_code for each in answer.responses] == [NONE]


def test_a_refusal_has_a_row_for_each_partition() -> None:
    world = World({**SETTINGS, "authorizer.class.name": STANDARD})
    topics = [{"name": "t", "partitions": [0, 3]}]
    dirs: list[dict[str, Any]] = [{"path": each, "topics": topics} for each in "ab"]
    answer = world.send(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs)
    denied = ErrorCode.cluster_authorization_failed
    assert [
        (
            each.topic_name,
            [(it.partition_index, it.error_code) for it in each.partitions],
        )
        for each in answer.results
    ] == [("t", [(0, denied), (3, denied)])] * 2


def test_group_offsets_outlive_a_move() -> None:
    world = moving()
    world.send(ApiKey.FIND_COORDINATOR, 3, key="g", key_type=0)
    commit(world, 7)
    offsets = {
        key: log.home
        for key, log in world.broker.logs.logs.items()
        if key.topic == "__consumer_offsets"
    }
    for key, directory in offsets.items():
        other = TWO if directory != TWO else THREE
        assert alter(world, other, key.topic, key.partition) is NONE
    world.pass_ms(5000)
    commit(world, 8)
    for each in (world, world.restarted()):
        assert all(
            each.broker.logs.logs[key].home != directory
            for key, directory in offsets.items()
        )
        answer = each.send(
            ApiKey.OFFSET_FETCH,
            7,
            group_id="g",
            topics=[{"name": "t", "partition_indexes": [0]}],
        )
        assert answer.topics[0].partitions[0].committed_offset == 8


def commit(world: World, offset: int) -> None:
    answer = world.send(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id="g",
        generation_id=-1,
        topics=[
            {
                "name": "t",
                "partitions": [{"partition_index": 0, "committed_offset": offset}],
            }
        ],
    )
    assert answer.topics[0].partitions[0].error_code is NONE


def test_the_topic_id_stays() -> None:
    world = moving()
    before: UUID | None = world.broker.logs.topic_id(KEY)
    assert alter(world, TWO) is NONE
    world.pass_ms(2000)
    assert world.broker.logs.topic_id(KEY) == before
    assert world.restarted().broker.logs.topic_id(KEY) == before
