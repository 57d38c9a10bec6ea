"""The cleaner's choice of log, its retry delay and its throttle."""

import pytest

from broker.disk.disk_failures import LogStorageError
from broker.disk.memory import Faults
from broker.log.steps import BlockingCall, Steps, run
from broker.log.upkeep.cleaner import compaction_due
from broker.log.upkeep.log_cleaner import CleanerConfig, LogCleaner
from broker.log.upkeep.periodic_task import CallsHere, Done, PeriodicTask
from tests.broker.log.managing import (
    COMPACT,
    NOW_MS,
    A,
    B,
    Failures,
    everything_below,
    fill,
    open_logs,
)

CONFIG = {"segment_bytes": 300, "cleanup_policy": COMPACT}
C = ("c", 0)
SECOND_NS = 1_000_000_000


def cleaner_of(manager, config=CleanerConfig, failed=pytest.fail):
    return LogCleaner(manager, config, everything_below(manager), failed)


def cleaned(manager):
    return {key for key, log in manager.logs.items() if log.cleaner_offset}


def test_the_dirtiest_log_comes_first():
    manager = open_logs(CONFIG, keys=(A, B, C))
    for key, count in ((A, 12), (B, 12), (C, 40)):
        fill(manager.logs[key], count)
    cleaner = cleaner_of(manager)
    # All but the active segment of each log is dirty, except below offset 6 of A.
    manager.logs[A].cleaner_offset = 6
    assert run(cleaner.round())
    assert cleaned(manager) in ({A, B}, {A, C})
    assert run(cleaner.round())
    assert cleaned(manager) == {A, B, C}
    manager.logs[A].cleaner_offset = manager.logs[A].segments.active.base_offset
    assert not run(cleaner.round())


def test_a_log_that_fails_is_left_alone_for_a_while():
    now = [NOW_MS]
    manager = open_logs(CONFIG, now_ms=lambda: now[0])
    fill(manager.logs[A], 40)
    fill(manager.logs[B], 12)
    failures = Failures()
    cleaner = cleaner_of(manager, failed=failures)
    manager.storage.faults = Faults(1)
    assert run(cleaner.round())
    assert [type(error) for _, error in failures] == [LogStorageError]
    run(cleaner.round())
    assert len(cleaned(manager)) == 1
    assert not run(cleaner.round())
    now[0] += 300_000
    assert run(cleaner.round())
    assert cleaned(manager) == {A, B}


def test_a_clock_that_is_put_back_does_not_make_it_longer():
    now = [NOW_MS]
    manager = open_logs(CONFIG, now_ms=lambda: now[0], keys=(A,))
    fill(manager.logs[A], 40)
    cleaner = cleaner_of(manager, failed=Failures())
    manager.storage.faults = Faults(1)
    assert run(cleaner.round())
    assert not run(cleaner.round())
    now[0] -= 3_600_000
    assert run(cleaner.round())
    assert cleaned(manager) == {A}


def test_two_cleaners_never_take_the_same_log():
    manager = open_logs(CONFIG)
    for log in manager.logs.values():
        fill(log, 24)
    cleaner = cleaner_of(manager)
    one, two, three = cleaner.round(), cleaner.round(), cleaner.round()
    next(one)
    next(two)
    assert not run(three)
    assert run(one)
    assert run(two)
    assert cleaned(manager) == {A, B}


@pytest.mark.parametrize("rate", [1000.0, 20_000.0])
def test_the_throttle_holds(rate):
    """Bytes read and written stay below the rate, with a slack of 0.3 seconds."""
    manager = open_logs(CONFIG, keys=(A,))
    fill(manager.logs[A], 60)
    cleaner = cleaner_of(manager, lambda: CleanerConfig(io_max_bytes_per_second=rate))
    now_ns = start_ns = 5 * SECOND_NS
    chore = PeriodicTask(
        cleaner.round,
        lambda: 3_600_000,
        first_ns=now_ns,
        failed=lambda error: pytest.fail(str(error)),
        calls=CallsHere(),
        not_before_ns=cleaner.not_before_ns,
    )
    largest = 0
    while (next_ns := chore.next_ns()) < start_ns + 3600 * SECOND_NS:
        now_ns = max(now_ns, next_ns)
        before = cleaner.cleaned_bytes
        chore.step(now_ns)
        largest = max(largest, cleaner.cleaned_bytes - before)
        seconds = (now_ns - start_ns) / SECOND_NS
        assert cleaner.cleaned_bytes <= rate * (seconds + 0.31) + largest
    assert cleaned(manager) == {A}
    # The cleaner reads the dirty part twice and writes the result once.
    size = 60 * manager.logs[A].segments.active.size // 3
    assert cleaner.cleaned_bytes > size
    assert now_ns - start_ns >= (cleaner.cleaned_bytes / rate - 0.4) * SECOND_NS


def test_memory_is_what_the_buffer_allows():
    config = CleanerConfig(dedupe_buffer_size=150 * 20, io_buffer_load_factor=0.5)
    assert config.keys_max == 10
    assert config._replace(threads=2).keys_max == 5
    manager = open_logs(CONFIG, keys=(A,))
    fill(manager.logs[A], 60, keys=20)
    cleaner = cleaner_of(manager, lambda: config)
    assert run(cleaner.round())
    assert 0 < manager.logs[A].cleaner_offset < 40


def test_max_compaction_lag_counts_from_what_is_on_disk():
    """After a clean start the first timestamp of an ended segment is not in memory."""
    config = {
        **CONFIG,
        "min_cleanable_dirty_ratio": 1.0,
        "max_compaction_lag_ms": 1000,
    }
    manager = open_logs(config, keys=(A,))
    fill(manager.logs[A], 12)
    manager.close({}.get, CallsHere().run_all)
    again = open_logs(config, storage=manager.storage, keys=())
    assert again.logs[A].segments[0].first_timestamp is None
    assert not compaction_due(again.logs[A], NOW_MS + 1000, 12)
    assert compaction_due(again.logs[A], NOW_MS + 1001, 12)


class RefusesOnce(CallsHere):
    """Refuses to start its first call, as without a free thread."""

    def __init__(self) -> None:
        self.refusals = 1

    def start(self, call: BlockingCall, done: Done) -> None:
        if self.refusals:
            self.refusals -= 1
            raise RuntimeError("can't start new thread")
        super().start(call, done)


def test_a_chore_whose_call_cannot_be_started_has_another_round() -> None:
    made, failed = [], []

    def begin() -> Steps[None]:
        yield lambda: made.append(1)

    chore = PeriodicTask(
        begin, lambda: 1, first_ns=0, failed=failed.append, calls=RefusesOnce()
    )
    now_ns = 0
    while not made:
        due_ns = chore.next_ns()
        assert due_ns is not None
        now_ns = max(now_ns, due_ns)
        chore.step(now_ns)
    assert [type(each) for each in failed] == [RuntimeError]
    assert made == [1]
