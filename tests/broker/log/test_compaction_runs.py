"""When compaction runs, which records it skips, and how interruptions end."""

import errno
import random
from contextlib import suppress

import pytest

from broker.disk.memory import Crashed, Faults
from broker.log import flushing, trimming
from broker.log.segments.log_config import LogConfig
from broker.log.steps import run
from broker.log.upkeep import cleaner
from broker.protocol.errors import KafkaError
from tests.broker.log.compacting import CONFIG, advance, compacted, put, records
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    batch,
    disk,
    everything,
    open_log,
    truncate_to,
)

# ---- eligible records and due times ----


def fill(log, count, *, start=0):
    for number in range(start, start + count):
        put(log, (b"k%d" % (number % 4), b"%030d" % number))
    return log


def test_nothing_is_compacted_that_is_not_replicated():
    log = fill(open_log(**CONFIG), 40)
    bases = [segment.base_offset for segment in log.segments]
    assert bases[:4] == [0, 5, 10, 15]
    compacted(log, up_to=14)
    assert records(log)[:5] == [
        (offset, b"k%d" % (offset % 4), b"%030d" % offset)
        for offset in (6, 7, 8, 9, 10)
    ]


def test_young_segments_wait_for_min_compaction_lag():
    log = fill(open_log(min_compaction_lag_ms=1000, **CONFIG), 40)
    before = everything(log)
    compacted(log, NOW_MS + 999)
    assert everything(log) == before
    compacted(log, NOW_MS + 1000)
    assert everything(log) != before


def test_compaction_is_due_by_the_dirty_ratio():
    log = open_log(min_cleanable_dirty_ratio=0.3, **CONFIG)
    assert not cleaner.compaction_due(log, NOW_MS, 0)
    fill(log, 40)
    assert cleaner.compaction_due(log, NOW_MS, 40)
    assert not cleaner.compaction_due(log, NOW_MS, 0)
    compacted(log)
    assert not cleaner.compaction_due(log, NOW_MS, 40)
    fill(log, 5, start=40)
    assert cleaner.compaction_due(log, NOW_MS, 45)


def test_compaction_is_due_by_max_compaction_lag():
    log = open_log(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500, **CONFIG)
    fill(log, 40)
    assert not cleaner.compaction_due(log, NOW_MS + 500, 40)
    assert cleaner.compaction_due(log, NOW_MS + 501, 40)


def test_a_plain_topic_is_never_due():
    log = fill(open_log(segment_bytes=500), 40)
    assert not cleaner.compaction_due(log, NOW_MS + 10**12, 40)


def test_a_full_map_compacts_what_it_knows():
    """The offset map bounds memory: the next run compacts the remaining records."""
    log = open_log(**CONFIG)
    for number in range(60):
        put(log, (b"k%d" % (number % 20), b"%030d" % number))
    history = {key: value for _, key, value in records(log)}
    run(cleaner.compaction(log, NOW_MS, 60, keys_max=10))
    log.check()
    assert 0 < log.cleaner_offset < 40
    for _ in range(10):
        run(cleaner.compaction(log, NOW_MS, 60, keys_max=10))
    assert log.cleaner_offset == log.segments.active.base_offset
    assert {key: value for _, key, value in records(log)} == history
    log.check()


def test_small_neighbours_become_one_segment():
    """Segments are grouped by their sizes before the run; the next run merges more."""
    log = fill(open_log(**CONFIG), 80)
    assert len(log.segments) == 16
    compacted(log)
    assert len(log.segments) == 16
    fill(log, 10, start=80)
    assert len(log.segments) == 18
    compacted(log)
    assert len(log.segments) == 4
    names = [name for name in log.storage.disk.names(HOME) if name.endswith(".log")]
    assert len(names) == 4


def test_long_keys_are_distinguished():
    log = open_log(**CONFIG)
    for end in (b"x", b"y", b"x"):
        put(log, (b"k" * 99 + end, b"v" + end))
    log.roll(NOW_MS)
    compacted(log)
    assert [record[0] for record in records(log)] == [1, 2]


# ---- changes to the log between steps ----


@pytest.mark.parametrize("steps", [1, 5, 20, 45, 60])
@pytest.mark.parametrize("event", ["append", "roll", "delete", "truncate", "close"])
def test_the_log_may_change_between_steps(event, steps):
    log = fill(open_log(**CONFIG), 40)
    work = cleaner.compaction(log, NOW_MS, 40)
    advance(work, steps)
    if event == "append":
        fill(log, 6, start=40)
    elif event == "roll":
        log.roll(NOW_MS)
    elif event == "delete":
        trimming.delete_records_before(log, 17)
    elif event == "truncate":
        truncate_to(log, 12, NOW_MS)
        fill(log, 20, start=12)
    else:
        work.close()
    end, start = log.log_end_offset, log.log_start_offset
    expected = {b"k%d" % (n % 4): b"%030d" % n for n in range(start, end)}
    run(work)
    log.check()
    assert {key: value for _, key, value in records(log)} == expected
    assert not [
        n for n in log.storage.disk.names(HOME) if n.endswith((".cleaned", ".swap"))
    ]
    assert log.cleaner_offset <= end
    again = open_log(log.storage.disk.after_kill(), **CONFIG)
    assert {key: value for _, key, value in records(again)} == expected


def small_segments(storage):
    """Return a log whose segments merge by two or three; half its keys are single."""
    log = open_log(storage, **CONFIG)
    for number in range(24):
        key = b"k%d" % (number % 3) if number % 2 else b"once %d" % number
        put(log, (key, b"%d" % number))
        if number % 3 == 2:
            log.roll(NOW_MS)
    return log


def test_neighbours_are_joined():
    log = small_segments(disk())
    expected = {key: value for _, key, value in records(log)}
    assert len(log.segments) == 9
    compacted(log)
    assert len(log.segments) == 5
    names = [name for name in log.storage.disk.names(HOME) if name.endswith(".log")]
    assert len(names) == 5
    assert {key: value for _, key, value in records(log)} == expected


def test_a_truncation_takes_back_what_was_compacted():
    log = small_segments(disk())
    compacted(log)
    assert log.cleaner_offset == 24
    truncate_to(log, 10, NOW_MS)
    assert log.cleaner_offset == 10


def test_keys_beyond_a_full_map_are_kept():
    log = open_log(segment_bytes=500)
    put(log, (b"a", b"1"), (b"a", b"2"))
    put(log, (b"b", b"3"))
    log.append(batch([b"no key"]), 0, NOW_MS)
    log.roll(NOW_MS)
    log.configure(LogConfig(**CONFIG))
    run(cleaner.compaction(log, NOW_MS, 4, keys_max=2))
    assert [value for _, _, value in records(log)] == [b"2", b"3", b"no key"]
    compacted(log)
    assert [value for _, _, value in records(log)] == [b"2", b"3"]


@pytest.mark.parametrize(
    ("error", "crash"),
    [
        (errno.EIO, False),
        (errno.ENOSPC, False),
        (errno.EMFILE, False),
        (errno.EIO, True),
    ],
)
def test_any_call_may_fail_during_a_compaction(error, crash):
    at, reached = 0, True
    while reached:
        at += 1
        log = small_segments(disk())
        flushing.flush(log)
        expected = {key: value for _, key, value in records(log)}
        faults = log.storage.disk.faults = Faults(
            at,
            error=error,
            crash=crash,
            short=50,
            reads=error == errno.EMFILE,
        )
        failed = False
        try:
            run(cleaner.compaction(log, NOW_MS, 24))
        except KafkaError:
            failed = True
        except Crashed:
            pass
        reached = faults.reached
        log.storage.disk.faults = Faults()
        for left in (
            log.storage.disk.after_kill(),
            log.storage.disk.after_power_loss(random.Random(at)),
        ):
            again = open_log(left, opening={"recovery_point": 24}, **CONFIG)
            again.check()
            assert again.log_end_offset == 24, at
            found = {key: value for _, key, value in records(again)}
            assert found == expected, at
            with suppress(KafkaError):
                compacted(again)
            found = {key: value for _, key, value in records(again)}
            assert found == expected, at
        if error == errno.EMFILE:
            assert log.durability.out_of_service is None, at
        if failed and not log.durability.out_of_service:
            # Nothing was committed: the log is unchanged and compaction can be retried.
            compacted(log)
            found = {key: value for _, key, value in records(log)}
            assert found == expected, at
    assert at > (10 if error == errno.EMFILE else 20)
