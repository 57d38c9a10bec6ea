"""Periodic rounds over all logs: a failed or deleted log does not affect others."""

import errno
import random

import pytest

from broker.disk.checkpoints import LOG_START_OFFSETS, read_offsets
from broker.disk.disk_failures import LogStorageError
from broker.disk.memory import Faults
from broker.disk.storage import join
from broker.log import flushing, trimming
from broker.log.steps import run
from broker.log.upkeep import rounds
from broker.log.upkeep.log_cleaner import CleanerConfig, LogCleaner
from broker.protocol.errors import KafkaError
from tests.broker.log.compacting import advance
from tests.broker.log.managing import (
    COMPACT,
    HOME,
    NOW_MS,
    A,
    B,
    Calls,
    Failures,
    everything_below,
    fill,
    open_logs,
)
from tests.broker.log.witness import batch, open_log, values_of

SMALL = {"segment_bytes": 300, "index_interval_bytes": 100}
OLD = {**SMALL, "retention_ms": 1000}
DIRTY = {**SMALL, "cleanup_policy": COMPACT, "min_cleanable_dirty_ratio": 0.0}


def retention(manager, failed):
    return rounds.retention(manager, everything_below(manager), failed)


def checkpoint(manager, failed):
    return rounds.checkpoint(manager, {}.get, print, failed)


def flush(manager, failed):
    return rounds.flush(manager, failed)


def cleaning(manager, failed):
    cleaner = LogCleaner(manager, CleanerConfig, everything_below(manager), failed)

    def work():
        while (yield from cleaner.round()):
            pass

    return work()


ROUNDS = [
    (retention, OLD, lambda log: log.log_start_offset == 12),
    (cleaning, DIRTY, lambda log: log.cleaner_offset > 0),
    (checkpoint, SMALL, lambda log: log.recovery_point > 0),
    (flush, {**SMALL, "flush_messages": 1}, lambda log: log.recovery_point == 12),
]


@pytest.mark.parametrize(("work", "config", "is_done"), ROUNDS)
def test_one_log_whose_disk_fails_costs_no_other_its_turn(work, config, is_done):
    now = [NOW_MS]
    manager = open_logs(config, now_ms=lambda: now[0])
    for log in manager.logs.values():
        fill(log, 12, age_ms=5000)
    now[0] += 60_000

    class OfOneLog(Faults):
        def count(self, call):
            if f"{HOME}/a-0" in call:
                raise OSError(errno.EIO, "its sectors are gone", call)

    manager.storage.faults = OfOneLog(reads=True)
    for segment in manager.logs[A].segments:
        segment.remember_nothing()
    failures = Failures()
    run(work(manager, failures))
    assert {path for path, _ in failures} == {f"{HOME}/a-0"}
    assert all(isinstance(error, LogStorageError) for _, error in failures)
    assert is_done(manager.logs[B])
    assert not is_done(manager.logs[A])


@pytest.mark.parametrize(("work", "config", "is_done"), ROUNDS[:2])
def test_our_own_fault_in_one_log_costs_no_other_its_turn(work, config, is_done):
    manager = open_logs(config)
    for log in manager.logs.values():
        fill(log, 12, age_ms=5000)
    manager.logs[A].producers = None
    failures = Failures()
    run(work(manager, failures))
    assert [type(error) for _, error in failures] == [AttributeError]
    assert is_done(manager.logs[B])


@pytest.mark.parametrize(("work", "config", "is_done"), ROUNDS)
def test_a_log_that_is_deleted_between_two_steps_harms_no_namesake(
    work, config, is_done
):
    """A topic is deleted and created again between any two steps of a round."""
    at, more = 0, True
    while more:
        now = [NOW_MS]
        manager = open_logs(config, now_ms=lambda now=now: now[0])
        for log in manager.logs.values():
            fill(log, 12, age_ms=5000)
        now[0] += 60_000
        failures = Failures()
        round_ = work(manager, failures)
        more = advance(round_, at)
        manager.delete_log(A)
        run(manager.checkpointing_deletions())
        again = manager.open_log(A, None)
        sent = batch([b"new"], keys=[b"k0"], timestamps=[now[0]])
        again.append(sent, 0, now[0])
        if more:
            run(round_)
        run(rounds.removal(manager, failures))
        assert failures == []
        assert values_of(again) == {0: b"new"}
        again.check()
        assert is_done(manager.logs[B])
        flushing.flush(again)
        left = manager.storage.after_kill()
        found = open_logs(config, storage=left, keys=())
        assert values_of(found.logs[A]) == {0: b"new"}
        at += 1
    assert at > 2


@pytest.mark.parametrize("what", ["ended", "active"])
def test_retention_frees_a_full_disk(what):
    """A roll finds no space on a full disk: deletion has to come first."""
    config = {**OLD, "segment_bytes": 300 if what == "ended" else 9999}
    manager = open_logs(config, keys=(A,))
    log, storage = manager.logs[A], manager.storage
    fill(log, 12, age_ms=5000)
    storage.fill_up()
    with pytest.raises(KafkaError, match="No space"):
        log.append(batch([b"refused"]), 0, NOW_MS)
    failures = Failures()
    for _ in range(2):
        run(retention(manager, failures))
        run(rounds.removal(manager, failures))
    assert all(error.error.errno == errno.ENOSPC for _, error in failures)
    assert log.log_start_offset == 12
    log.append(batch([b"after"]), 0, NOW_MS)
    assert values_of(log) == {12: b"after"}
    log.check()


def test_a_deleted_log_is_kept_for_a_while():
    now = [NOW_MS]
    manager = open_logs({"file_delete_delay_ms": 60_000}, now_ms=lambda: now[0])
    manager.delete_log(A)
    doomed = f"a-0.{1:032x}-delete"
    for at_ms, is_there in ((0, True), (59_999, True), (60_000, False)):
        now[0] = NOW_MS + at_ms
        run(rounds.removal(manager, Failures()))
        assert (doomed in manager.storage.names(HOME)) == is_there
    assert manager.doomed.wait_ms(NOW_MS) is None


def test_failed_removals_are_repeated():
    now = [NOW_MS]
    manager = open_logs({"file_delete_delay_ms": 0}, now_ms=lambda: now[0])
    manager.delete_log(A)
    manager.delete_log(B)
    manager.storage.faults = Faults(1, error=errno.ENOMEM)
    failures = Failures()
    run(rounds.removal(manager, failures))
    assert len(failures) == 1
    assert manager.doomed.wait_ms(NOW_MS) == 60_000
    now[0] += 60_000
    run(rounds.removal(manager, failures))
    assert manager.storage.names(HOME) == []


def test_a_name_that_is_still_waiting_is_not_taken_again():
    """Also by a broker that has restarted since."""
    manager = open_logs({})
    manager.delete_log(A)
    again = open_logs({}, storage=manager.storage.after_kill())
    for _ in range(2):
        again.delete_log(A)
        run(again.checkpointing_deletions())
        again.open_log(A, None)
    names = [name for name in again.storage.names(HOME) if name.endswith("-delete")]
    assert names == [f"a-0.{number:032x}-delete" for number in (1, 2, 3)]


def test_steps_touch_no_device_that_may_keep_them_waiting():
    """Syncs and file removals may block, and run as blocking calls, not in steps."""
    manager = open_logs({**OLD, **DIRTY, "cleanup_policy": {"compact", "delete"}})
    for log in manager.logs.values():
        fill(log, 24, age_ms=500)
    manager.delete_log(B)
    now = NOW_MS + 60_000
    manager.now_ms = lambda: now
    calls = manager.storage.faults = Calls()
    for work in (cleaning, retention, checkpoint, flush):
        steps = work(manager, Failures())
        for call in steps:
            before = len(calls.names)
            if call is not None:
                call()
            del calls.names[before:]
    assert {name.split()[0] for name in calls.names} <= {
        "rename",
        "create",
        "write",
        "truncate",
    }


def test_a_roll_syncs_nothing():
    log = open_log(**SMALL)
    fill(log, 3)
    calls = log.storage.disk.faults = Calls()
    log.roll(NOW_MS)
    assert calls.names
    assert not [name for name in calls.names if name.startswith("sync")]
    # The next flush syncs the files of the roll.
    flushing.flush(log)
    names = [join(log.directory, f"{3:020d}.snapshot"), log.directory]
    assert {f"sync {name}" for name in names} <= set(calls.names)


def test_compacted_segments_do_not_hold_the_recovery_point_back():
    """The compacted copy is durable; no ended segment is left to flush."""
    now = [NOW_MS]
    manager = open_logs(DIRTY, keys=(A,), now_ms=lambda: now[0])
    log = manager.logs[A]
    fill(log, 12, age_ms=5000)
    run(cleaning(manager, Failures()))
    now[0] += 60_000
    run(checkpoint(manager, Failures()))
    assert log.recovery_point == log.segments.active.base_offset > 0
    left = manager.storage.after_power_loss(random.Random(1))
    found = open_logs(DIRTY, storage=left, keys=())
    ended = {offset for offset in values_of(log) if offset < log.recovery_point}
    assert ended
    assert ended <= set(values_of(found.logs[A]))


def test_an_orderly_stop_leaves_alone_what_has_not_changed():
    manager = open_logs({})
    fill(manager.logs[A], 3)
    manager.close({}.get, lambda calls: [call() for call in calls])
    again = open_logs({}, storage=manager.storage)
    fill(again.logs[B], 1)
    calls = manager.storage.faults = Calls()
    again.close({}.get, lambda calls: [call() for call in calls])
    assert not [name for name in calls.names if "/a-0" in name]
    assert [name for name in calls.names if "/b-0" in name]
    last = open_logs({}, storage=manager.storage)
    assert [len(values_of(last.logs[key])) for key in (A, B)] == [3, 1]


def test_an_orderly_stop_makes_durable_what_has_only_changed_its_names():
    """Since the start, records were deleted and none appended."""
    manager = open_logs({"segment_bytes": 100}, keys=(A,))
    fill(manager.logs[A], 6)
    manager.close({}.get, lambda calls: [call() for call in calls])
    again = open_logs({"segment_bytes": 100}, storage=manager.storage, keys=(A,))
    log = again.logs[A]
    assert log.settled_offset == log.recovery_point == 6
    assert log.durability.everything
    trimming.delete_records_before(log, 3)
    assert not log.durability.everything
    calls = manager.storage.faults = Calls()
    again.close({}.get, lambda calls: [call() for call in calls])
    assert f"sync {log.directory}" in calls.names


def test_a_flush_of_what_ended_long_ago_leaves_the_rest_to_be_synced():
    manager = open_logs({"segment_bytes": 100}, keys=(A,))
    log = manager.logs[A]
    for offset in range(3):
        fill(log, 1)
        log.roll(NOW_MS + 60_000 * offset)
    assert not log.durability.everything
    syncs = flushing.syncs_of_ended(log, NOW_MS + 120_000)
    run(flushing.flush_in_steps(log, syncs))
    # All directory entries are on disk; the records of one segment may not be.
    assert 0 < log.recovery_point < 3
    assert not log.durability.everything
    flushing.flush(log)
    assert log.durability.everything


def test_log_starts_are_read_when_their_checkpoint_is_written():
    """Two DeleteRecords requests whose threads finish in the opposite order."""
    manager = open_logs(SMALL)
    for key in (A, B):
        fill(manager.logs[key], 9)
    trimming.delete_records_before(manager.logs[A], 3)
    (first,) = manager.keeping_starts([A, B]).values()
    trimming.delete_records_before(manager.logs[A], 5)
    (second,) = manager.keeping_starts([A]).values()
    second()
    first()
    starts = read_offsets(manager.storage, HOME, LOG_START_OFFSETS)
    assert starts == {A: 5, B: 0}


def test_the_start_of_a_deleted_log_is_not_that_of_the_next_of_its_name():
    manager = open_logs(SMALL)
    fill(manager.logs[A], 9)
    trimming.delete_records_before(manager.logs[A], 3)
    (late,) = manager.keeping_starts([A]).values()
    manager.delete_log(A)
    run(manager.checkpointing_deletions())
    manager.open_log(A, None)
    late()
    assert read_offsets(manager.storage, HOME, LOG_START_OFFSETS) == {}


def test_a_round_of_retention_forgets_producers_that_were_silent_for_long():
    now = [NOW_MS]
    manager = open_logs({"producer_id_expiration_ms": 500}, now_ms=lambda: now[0])
    log = manager.logs[A]
    log.append(batch([b"x"], producer_id=7, epoch=0, sequence=0), 0, NOW_MS)
    for after_ms, known in ((500, 1), (501, 0)):
        now[0] = NOW_MS + after_ms
        run(retention(manager, Failures()))
        assert len(log.producers) == known
