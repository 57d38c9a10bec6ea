"""Log directories are added or removed, or the registry is lost: no log is lost.

After each mistake of an operator every acknowledged record can be read, no log
directory is removed, and producer ids continue after the last one.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.coordination.cluster_state import Change
from broker.coordination.embedded_registry import Registry
from broker.coordination.registry_file import FILE_NAME
from broker.disk.identity import kafka_uuid
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import MemoryStorage
from broker.disk.partition_metadata import FILE_NAME as PARTITION_METADATA
from broker.disk.storage import join, read_whole, write_atomically
from broker.log.log_reading import read
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ConfigError, ErrorCode
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import SECONDS_30, leader_and_isr, values_of

OLD, NEW = "/data/old", "/data/new"
ONE, TWO = {"log.dirs": OLD}, {"log.dirs": f"{NEW},{OLD}"}
KAFKA_ID = UUID("12345678-1234-5678-1234-567812345678")
YEAR_MS = 365 * 24 * 3_600_000


def filled(settings: dict[str, str]) -> World:
    """Return a broker with two topics, committed records and a known producer."""
    world = World(settings)
    world.create("t", 2, retention_ms="1000")
    world.create("other")
    for partition in (0, 1):
        world.produce("t", b"a", b"b", partition=partition)
    world.produce("other", b"c")
    world.send(ApiKey.INIT_PRODUCER_ID, 4)
    return world


def values(world: World, topic: str, partition: int = 0) -> list[bytes]:
    log = world.broker.logs.logs[topic, partition]
    piece = read(log, log.log_start_offset, 1 << 20, log.log_end_offset)
    return [] if piece is None else [value for _, value in values_of(piece.read())]


def assert_all_there(world: World) -> None:
    assert set(world.broker.coordinator.admin.topics) >= {"t", "other"}
    assert values(world, "t", 0) == values(world, "t", 1) == [b"a", b"b"]
    assert values(world, "other") == [b"c"]
    assert [value for _, value in values_of(world.fetch("t").records)] == [b"a", b"b"]
    assert world.produce("t", b"more").base_offset == 2
    world.check()


def again(world: World, settings: dict[str, str]) -> World:
    return World({**world.settings, **settings}, world.storage.after_kill())


def test_a_new_directory_before_the_old_one_costs_nothing() -> None:
    before = filled(ONE)
    ids = before.broker.coordinator.admin.topics
    after = again(before, TWO)
    # A Metadata request with auto-creation would create an unknown topic.
    after.send(
        ApiKey.METADATA, 12, topics=[{"name": "t"}], allow_auto_topic_creation=True
    )
    assert after.broker.coordinator.admin.topics["t"].topic_id == ids["t"].topic_id
    assert after.broker.coordinator.admin.topics["t"].configs == ids["t"].configs
    assert_all_there(after)
    assert after.send(ApiKey.INIT_PRODUCER_ID, 4).producer_id >= 1000


def test_either_directory_may_be_lost_and_the_registry_is_not() -> None:
    before = filled(TWO)
    homes = {key: log.directory for key, log in before.broker.logs.logs.items()}
    assert len({home.rpartition("/")[0] for home in homes.values()}) == 2
    for lost, kept in ((NEW, OLD), (OLD, NEW)):
        storage = before.storage.after_kill()
        remove_tree(storage, lost)
        after = World(before.settings, storage)
        assert after.broker.coordinator.admin.topics["t"].configs == {
            "retention.ms": "1000"
        }
        found = {
            key
            for key, home in homes.items()
            if home.startswith(kept) and values(after, *key)
        }
        assert found == {key for key, home in homes.items() if home.startswith(kept)}
        assert after.send(ApiKey.INIT_PRODUCER_ID, 4).producer_id >= 1000


def test_topics_are_adopted_where_no_registry_is_left() -> None:
    before = filled(ONE)
    ids = {name: each.topic_id for name, each in topics(before).items()}
    storage = before.storage.after_kill()
    storage.remove(join(OLD, FILE_NAME))
    after = World(before.settings, storage)
    assert {name: each.topic_id for name, each in topics(after).items()} == ids
    assert_all_there(after)
    assert after.send(ApiKey.INIT_PRODUCER_ID, 4).producer_id >= 1000


def test_adopted_logs_are_kept_until_an_operator_sets_the_retention() -> None:
    before = filled({**ONE, "log.retention.ms": "1000", "log.segment.bytes": "1024"})
    for _ in range(3):
        before.produce("other", b"x" * 600)
    storage = before.storage.after_kill()
    storage.remove(join(OLD, FILE_NAME))
    after = World(before.settings, storage)
    after.now_ns = YEAR_MS * 1_000_000
    after.pass_ms(0)
    assert after.broker.logs.logs["other", 0].log_start_offset == 0
    assert topics(after)["other"].configs == {
        "cleanup.policy": "delete",
        "retention.bytes": "-1",
        "retention.ms": "-1",
    }


def test_the_directories_of_apache_kafka_become_topics_with_their_ids() -> None:
    storage = kafka_data()
    world = World(ONE, storage)
    assert topics(world)["theirs"].topic_id == KAFKA_ID
    # The highest partition number found gives the number of partitions.
    assert len(topics(world)["theirs"].leader_epochs) == 3
    assert len(topics(world)["older"].leader_epochs) == 1
    assert values(world, "theirs", 2) == [b"from kafka"]
    assert values(world, "older") == [b"without an id"]
    content = read_whole(storage, f"{OLD}/older-0/{PARTITION_METADATA}").decode()
    assert f"topic_id: {kafka_uuid(topics(world)['older'].topic_id)}" in content
    # The metadata log of KRaft is not a topic.
    assert "__cluster_metadata" not in topics(world)
    assert storage.names(f"{OLD}/__cluster_metadata-0") == ["quorum-state"]
    world.check()


def test_groups_find_their_offsets_where_the_registry_is_lost() -> None:
    before = filled({**ONE, "offsets.topic.num.partitions": "3"})
    find = {"key": "g", "key_type": 0}
    before.send(ApiKey.FIND_COORDINATOR, 3, **find)
    before.pass_ms(0)
    committed = {"partition_index": 0, "committed_offset": 2}
    topic = {"name": "t", "partitions": [committed]}
    answer = before.send(
        ApiKey.OFFSET_COMMIT, 8, group_id="g", generation_id=-1, topics=[topic]
    )
    assert answer.topics[0].partitions[0].error_code is NONE
    storage = before.storage.after_kill()
    storage.remove(join(OLD, FILE_NAME))
    after = World({**before.settings, "offsets.topic.num.partitions": "7"}, storage)
    configs = topics(after)["__consumer_offsets"].configs
    assert configs["cleanup.policy"] == "compact"
    wanted = {"name": "t", "partition_indexes": [0]}
    found = after.send(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[wanted])
    assert found.topics[0].partitions[0].committed_offset == 2


def test_a_log_of_an_earlier_topic_of_that_name_is_set_aside() -> None:
    """A log that was absent at its topic's deletion is not used for a new topic."""
    before = filled(ONE)
    storage = before.storage.after_kill()
    names = storage.names(f"{OLD}/t-0")
    held = {name: read_whole(storage, f"{OLD}/t-0/{name}") for name in names}
    world = World(before.settings, storage)
    delete(world, "t")
    world.create("t")
    storage = world.storage.after_kill()
    for name in storage.names(f"{OLD}/t-0"):
        storage.remove(f"{OLD}/t-0/{name}")
    for name, content in held.items():
        write_atomically(storage, f"{OLD}/t-0", name, content)
    after = World(world.settings, storage)
    (stray,) = [name for name in storage.names(OLD) if name.endswith("-stray")]
    assert stray.startswith("t-0.")
    kept = read_whole(storage, f"{OLD}/{stray}/{names[1]}")
    assert kept == held[names[1]]
    assert values(after, "t") == []
    assert after.produce("t", b"new").base_offset == 0
    # A stray log is not examined again, and the next one gets another name.
    assert stray in again(after, {}).storage.names(OLD)


@pytest.mark.parametrize(
    ("topic_id", "error"),
    [
        (KAFKA_ID, ErrorCode.inconsistent_topic_id),
        (None, ErrorCode.stale_controller_epoch),
    ],
)
def test_creating_a_topic_never_deletes_the_replica_of_another_controller(
    topic_id: UUID | None, error: ErrorCode
) -> None:
    world = World(ONE)
    command = leader_and_isr(("t", 0), leader=0, leader_epoch=1, topic_id=topic_id)
    world.command(ApiKey.LEADER_AND_ISR, command)
    world.produce("t", b"theirs")
    answer = world.send(
        ApiKey.CREATE_TOPICS,
        7,
        topics=[
            {"name": "t", "num_partitions": 2, "replication_factor": 1}
            | {"assignments": [], "configs": []}
        ],
        timeout=SECONDS_30,
    )
    assert answer.topics[0].error_code is error
    assert values(world, "t") == [b"theirs"]
    assert set(world.broker.logs.logs) == {("t", 0)}
    after = again(world, {})
    assert topic_id in (None, topics(after)["t"].topic_id)
    assert values(after, "t") == [b"theirs"]


def test_directories_that_only_look_like_logs_are_left_alone() -> None:
    storage = MemoryStorage()
    for name in ("backup-20261122", "please-delete", "photos-delete"):
        storage.make_directory(f"{OLD}/{name}")
        write_atomically(storage, f"{OLD}/{name}", "letter.txt", b"dear")
    world = World(ONE, storage)
    assert topics(world) == {}
    for name in ("backup-20261122", "please-delete", "photos-delete"):
        assert storage.names(f"{OLD}/{name}") == ["letter.txt"]


def test_two_logs_of_one_partition_stop_the_start_and_both_are_named() -> None:
    storage = filled(ONE).storage.after_kill()
    for name in storage.names(f"{OLD}/t-0"):
        storage.make_directory(f"{NEW}/t-0")
        content = read_whole(storage, f"{OLD}/t-0/{name}")
        write_atomically(storage, f"{NEW}/t-0", name, content)
    with pytest.raises(ConfigError, match=r"log.dirs: found .*t-0.*t-0"):
        World(TWO, storage)


def test_registries_that_disagree_under_one_number_stop_the_start() -> None:
    storage = filled(TWO).storage.after_kill()
    for number, directory in enumerate((OLD, NEW)):
        registry = Registry(storage, LogDirs([directory]))
        registry.load()
        registry.change(Change(next_producer_id=10_000 + number))
    with pytest.raises(ConfigError, match=r"log.dirs: found .*cluster.json"):
        World(TWO, storage)


def test_an_older_copy_of_the_registry_is_named_and_brought_up_to_date(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = filled(TWO)
    storage = before.storage.after_kill()
    stale = read_whole(storage, join(NEW, FILE_NAME))
    after = World(TWO, storage)
    after.create("later")
    storage = after.storage.after_kill()
    write_atomically(storage, NEW, FILE_NAME, stale)
    caplog.clear()
    newest = World(TWO, storage)
    assert "later" in topics(newest)
    assert "a log directory held an older registry" in caplog.text
    copies = {read_whole(storage, join(home, FILE_NAME)) for home in (OLD, NEW)}
    assert len(copies) == 1


def test_a_deleted_topic_does_not_come_back_with_the_registry_lost() -> None:
    world = filled(ONE)
    delete(world, "t")
    storage = world.storage.after_kill()
    storage.remove(join(OLD, FILE_NAME))
    assert set(topics(World(ONE, storage))) == {"other"}


def test_a_start_without_any_disk_left_behind_begins_with_the_first_id() -> None:
    assert World(ONE).send(ApiKey.INIT_PRODUCER_ID, 4).producer_id == 0


def test_upkeep_keeps_the_registry_short() -> None:
    world = filled(TWO)
    throttled = ",".join(f"{index}:0" for index in range(4_000))
    for number in range(11):
        name = f"long-{number}"
        world.create(name, leader_replication_throttled_replicas=throttled)
        delete(world, name)
    paths = [join(directory, FILE_NAME) for directory in (OLD, NEW)]
    assert all(world.storage.open(path).size() > 280_000 for path in paths)
    world.pass_ms(0)
    assert all(world.storage.open(path).size() < 2_000 for path in paths)
    assert world.broker.maintenance.failures == 0
    assert_all_there(again(world, {}))


# ---- helpers ----


def topics(world: World):  # type: ignore[no-untyped-def] # a mapping of `Topic`
    return world.broker.coordinator.admin.topics


def delete(world: World, name: str) -> None:
    answer = world.send(
        ApiKey.DELETE_TOPICS, 6, topics=[{"name": name}], timeout=SECONDS_30
    )
    assert answer.responses[0].error_code is NONE


def remove_tree(storage: MemoryStorage, path: str) -> None:
    for name in storage.names(path):
        inner = join(path, name)
        if storage.is_directory(inner):
            remove_tree(storage, inner)
        else:
            storage.remove(inner)
    storage.remove_directory(path)


def kafka_data() -> MemoryStorage:
    """Return a disk as Apache Kafka leaves it: no registry, ids in each partition."""
    maker = World({"log.dirs": "/maker"})
    maker.create("theirs", 3)
    maker.create("older", 1)
    maker.produce("theirs", b"from kafka", partition=2)
    maker.produce("older", b"without an id")
    storage = MemoryStorage()
    for name in ("theirs-0", "theirs-2", "older-0"):
        storage.make_directory(f"{OLD}/{name}")
        for file in maker.storage.names(f"/maker/{name}"):
            content = read_whole(maker.storage, f"/maker/{name}/{file}")
            if file == PARTITION_METADATA and name.startswith("theirs"):
                content = f"version: 0\ntopic_id: {kafka_uuid(KAFKA_ID)}\n".encode()
            if file != PARTITION_METADATA or name.startswith("theirs"):
                write_atomically(storage, f"{OLD}/{name}", file, content)
    storage.make_directory(f"{OLD}/__cluster_metadata-0")
    write_atomically(storage, f"{OLD}/__cluster_metadata-0", "quorum-state", b"{}")
    return storage


def test_the_last_leader_epoch_that_there_is_costs_no_start_and_no_record() -> None:
    """Any peer of a broker without an authorizer can send that leader epoch."""
    world = World(ONE)
    topic_id = world.create("t")
    last = 2**31 - 1
    command = leader_and_isr(("t", 0), leader=0, leader_epoch=last, topic_id=topic_id)
    world.command(ApiKey.LEADER_AND_ISR, command)
    for number in range(3):
        assert world.produce("t", b"%d" % number).error_code is NONE
        world = again(world, {})
    assert values(world, "t") == [b"0", b"1", b"2"]
    world.check()
