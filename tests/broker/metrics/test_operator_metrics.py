"""Metrics for operators: group lag, directory sizes, flushes, offline partitions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from broker.disk.files import RealStorage
from broker.disk.memory import MemoryFile, MemoryStorage
from broker.log.flush_times import FlushTimes
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import World
from tests.broker.metrics.text import exposition, samples

LAG = "kafka_consumergroup_lag"
FLUSHES = "kafka_log_logflushstats_logflushrateandtimems"


def scraped(world: World) -> dict[Any, float]:
    return samples(exposition(world.apis.metrics()))


def commit(world: World, group: str, **offsets: int) -> None:
    """Commit offsets of partition 0 of each topic."""
    world.send(ApiKey.FIND_COORDINATOR, 3, key=group, key_type=0)
    answer = world.send(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[
            {
                "name": name,
                "partitions": [{"partition_index": 0, "committed_offset": offset}],
            }
            for name, offset in offsets.items()
        ],
    )
    for topic in answer.topics:
        assert topic.partitions[0].error_code is ErrorCode.none


def lags(found: dict[Any, float]) -> dict[tuple[str, str], float]:
    """Return lags by group and topic."""
    return {
        (dict(labels)["consumergroup"], dict(labels)["topic"]): value
        for (name, *labels), value in found.items()
        if name == LAG
    }


def test_lag_is_what_a_group_has_not_committed() -> None:
    world = World()
    for name in ("a", "b"):
        world.create(name)
    world.produce("a", *(b"v" for _ in range(7)))
    commit(world, "g", a=3, b=0)
    commit(world, "h", a=7)
    assert lags(scraped(world)) == {("g", "a"): 4, ("g", "b"): 0, ("h", "a"): 0}
    world.produce("a", b"v")
    # An offset beyond the end, as after a truncation, gives a lag of 0.
    commit(world, "h", a=100)
    assert lags(scraped(world)) == {("g", "a"): 5, ("g", "b"): 0, ("h", "a"): 0}


def test_lag_of_many_partitions_lets_others_run_in_between() -> None:
    world = World()
    names = [f"t{number}" for number in range(100)]
    for name in names:
        world.create(name)
    commit(world, "g", **dict.fromkeys(names, 0))
    run = longest = 0
    for sample in world.apis.metrics():
        is_lag = sample is not None and sample.name == LAG
        run = run + 1 if is_lag else 0
        longest = max(longest, run)
    assert longest <= 32


def described(world: World) -> dict[str, tuple[int, int, int]]:
    """Return the error and the sizes of each volume, as clients receive them."""
    answer = world.send(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=None)
    return {
        row.log_dir: (row.error_code, row.total_bytes, row.usable_bytes)
        for row in answer.results
    }


def test_sizes_of_directories_are_those_of_their_logs() -> None:
    world = World({"log.dirs": "/a,/b"})
    for name in ("t", "u", "v"):
        world.create(name)
        world.produce(name, b"v" * 1000)
    found = scraped(world)
    sizes = dict.fromkeys(("/a", "/b"), 0)
    for log in world.broker.logs.logs.values():
        sizes[log.home] += log.size_bytes
    for home, size in sizes.items():
        label = ("logDirectory", home)
        assert found["doorkeeper_log_directory_bytes", label] == size > 1000
        assert found["doorkeeper_log_volume_total_bytes", label] == 1 << 40
        usable = found["doorkeeper_log_volume_usable_bytes", label]
        assert 0 < usable < 1 << 40
        assert described(world)[home] == (0, 1 << 40, usable)
        assert found["kafka_log_logmanager_logdirectoryoffline", label] == 0


def test_an_offline_directory_has_no_sizes_and_its_partitions_no_leader() -> None:
    world = World({"log.dirs": "/a,/b"})
    for name in ("t", "u", "v"):
        world.create(name)
    offline = "kafka_controller_kafkacontroller_offlinepartitionscount"
    found = scraped(world)
    assert found[(offline,)] == 0
    assert found[("kafka_controller_kafkacontroller_activecontrollercount",)] == 1
    in_a = [key for key, log in world.broker.logs.logs.items() if log.home == "/a"]
    world.broker.log_dirs.failed("/a", OSError(5, "broken"))
    world.pass_ms(0)
    found = scraped(world)
    assert found[(offline,)] == len(in_a) > 0
    assert ("doorkeeper_log_directory_bytes", ("logDirectory", "/a")) not in found
    assert ("doorkeeper_log_directory_bytes", ("logDirectory", "/b")) in found
    assert described(world)["/a"] == (ErrorCode.kafka_storage_error, -1, -1)


def test_each_flush_is_counted_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.create("t", flush_messages="1")
    before = scraped(world)
    sync, synced = MemoryFile.sync, []

    def slow(file: MemoryFile) -> None:
        synced.append(file)
        world.now_ns += 250_000_000
        sync(file)

    monkeypatch.setattr(MemoryFile, "sync", slow)
    for _ in range(3):
        world.produce("t", b"v")
    after = scraped(world)
    count, total = (FLUSHES + "_count",), (FLUSHES + "_sum",)
    assert after[count] == before[count] + 3
    assert len(synced) >= 3
    assert after[total] == before[total] + 250 * len(synced)


def test_times_are_milliseconds() -> None:
    times = FlushTimes(lambda: 0)
    for duration_ns in (250_000_000, 750_000_000):
        times.add(duration_ns)
    found = samples(exposition(times.metrics()))
    assert found[(FLUSHES + "_count",)] == 2
    assert found[(FLUSHES + "_sum",)] == 1000
    assert found[FLUSHES, ("quantile", "0.99")] == pytest.approx(750, rel=0.07)


def test_memory_that_is_bounded_has_what_is_left_of_it() -> None:
    storage = MemoryStorage()
    storage.make_directory("/d")
    storage.open("/d/f", create=True).write(0, (b"x" * 600,), 600)
    storage.capacity_bytes = 1000
    assert storage.volume("/d") == (1000, 400)


def test_the_sizes_of_a_real_volume_are_those_of_df(tmp_path: Path) -> None:
    total, usable = RealStorage().volume(str(tmp_path))
    found = shutil.disk_usage(tmp_path)
    assert total == found.total
    assert usable == pytest.approx(found.free, rel=0.1, abs=1 << 28)
