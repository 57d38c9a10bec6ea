"""Open file descriptors of logs: one per segment at any time."""

import os
from contextlib import suppress

from broker.disk.files import RealStorage
from broker.disk.log_dirs import LogDirs
from broker.log import flushing
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.recovery import open_log as open_real_log
from tests.broker.log.managing import COMPACT, NOW_MS, A, B, fill
from tests.broker.log.witness import values_of

DIRTY = {
    "segment_bytes": 300,
    "index_interval_bytes": 100,
    "cleanup_policy": COMPACT,
    "min_cleanable_dirty_ratio": 0.0,
}


def test_a_log_that_rolls_holds_one_descriptor_for_each_segment(tmp_path):
    """Files that wait for a sync hold none: a minute may contain many rolls."""
    config = {**DIRTY, "min_cleanable_dirty_ratio": 1.0}
    home = str(tmp_path / "a-0")
    storage = RealStorage()
    storage.make_directory(home)
    log = open_real_log(home, LogConfig(**config), storage, NOW_MS)
    for _ in range(20):
        fill(log, 3)
        log.roll(NOW_MS)
    assert len(log.segments) > 20
    assert sorted(held_below(tmp_path)) == sorted(
        segment.path(".log") for segment in log.segments
    )
    calls = []
    for file in flushing.due_syncs(log).files:
        calls.append(os.readlink(f"/proc/self/fd/{file.fileno()}"))
    assert sum(name.endswith(".snapshot") for name in calls) > 19
    flushing.flush(log)
    del file
    assert len(held_below(tmp_path)) == len(log.segments)


def test_a_log_that_is_opened_or_settled_holds_the_descriptors_of_its_segments(
    tmp_path,
):
    """Three descriptors per segment would exceed the process limit with many logs."""
    config = {**DIRTY, "index_interval_bytes": 100}

    def held():
        return {name.rpartition("/")[2] for name in held_below(tmp_path)}

    manager = real_logs(config, tmp_path)
    fill(manager.logs[A], 30)
    logs = {name.rpartition("/")[2] for name in held()}
    assert logs
    assert all(name.endswith(".log") for name in logs)
    held_while_settling = []

    def one_by_one(calls):
        for call in calls:
            call()
            held_while_settling.extend(held())

    manager.close({}.get, one_by_one)
    assert held_while_settling
    assert all(name.endswith(".log") for name in held_while_settling)
    del manager
    again = real_logs(config, tmp_path)
    assert again.logs[A].log_end_offset == 30
    assert held() == logs
    # Indexes are reopened when a read needs them.
    assert len(values_of(again.logs[A])) == 30


def real_logs(config, directory):
    made = LogManager(
        LogDirs([str(directory)]),
        RealStorage(),
        config_of=lambda topic: LogConfig(**config),
        now_ms=lambda: NOW_MS,
    )
    made.open()
    for key in (A, B):
        made.open_log(key, None)
    return made


def held_below(directory):
    """Return the paths below a directory that this process has open."""
    open_files = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            open_files.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in open_files if path.startswith(str(directory))]
