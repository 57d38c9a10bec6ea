"""Every disk call fails once or crashes once: the log keeps its guarantees.

A fixed sequence of operations on a log is repeated; each time the next call fails,
until a run passes without reaching it. After a failed call the log either continues as
if the operation had not been requested, or leaves service. After a crash, a restart
finds every flushed batch, no torn one, and nothing that was never appended.
"""

import errno
import random
from contextlib import suppress

import pytest

from broker.disk.memory import Crashed, Faults
from broker.log import flushing, trimming
from broker.log.steps import run
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    batch,
    disk,
    open_log,
    truncate_to,
    values_of,
)

CONFIG = {"segment_bytes": 600, "index_interval_bytes": 150}


class Day:
    """A sequence of appends, rolls, flushes and cuts, with the expected contents."""

    def __init__(self, storage):
        self.storage = storage
        # Values in the log by offset, of all operations that succeeded.
        self.values = []
        self.start = 0
        self.flushed = 0
        # Value of an append in progress.
        self.under_way = None
        # Values that a failed truncation may have left; the log is out of service then.
        self.half_cut = []
        self.log = None
        self.sequence = 0
        self.failures = []

    def run(self):
        self._try(self._open, {})
        for number in range(12):
            self._try(self._append, b"plain %d" % number * 6, {})
            self._try(self._append, b"idempotent %d" % number, {"producer_id": 3})
            if number % 4 == 1:
                self._try(self._flush)
            if number == 6:
                self._try(self._delete_records, 3)
            if number == 8:
                self._try(self._truncate, -2)
        self._try(self._flush)
        self._try(self._append, b"late", {})
        self._try(self._close)

    def _try(self, operation, *arguments):
        if self.log is None and operation != self._open:
            return
        try:
            operation(*arguments)
        except OSError as error:
            self.failures.append(error)
            # Only opening raises OSError; other operations raise KafkaError.
            assert self.log is None
        except KafkaError as error:
            self.failures.append(error)
        if self.log is not None and not self.half_cut:
            assert self.log.log_end_offset == len(self.values)
            assert self.log.log_start_offset == self.start

    def _open(self, opening):
        self.log = open_log(self.storage, opening=opening, **CONFIG)

    def _append(self, value, options):
        if options:
            options = {**options, "epoch": 0, "sequence": self.sequence}
        self.under_way = value
        appended = self.log.append(batch([value], **options), 0, NOW_MS)
        self.under_way = None
        assert appended.base_offset == len(self.values)
        self.values.append(value)
        self.sequence += bool(options)

    def _flush(self):
        flushing.flush(self.log)
        self.flushed = len(self.values)

    def _delete_records(self, offset):
        self.start = offset = min(offset, len(self.values))
        trimming.delete_records_before(self.log, offset)

    def _truncate(self, count):
        end = max(len(self.values) + count, 0)
        # A failure in this call changes nothing.
        producers = run(trimming.producers_before(self.log, end))
        self.flushed = min(self.flushed, end)
        kept, self.values = self.values, self.values[:count]
        self.half_cut = kept[count:]
        end = trimming.truncate_to(self.log, end, NOW_MS, producers)
        assert end == len(self.values)
        self.start = min(self.start, end)
        self.sequence -= sum(v.startswith(b"idem") for v in kept[count:])
        run(trimming.cut_in_steps(self.log))
        self.half_cut = []

    def _close(self):
        flushing.settle(self.log)
        self.flushed = len(self.values)


def sweep(**options):
    """Yield a day per failing call, until one day passes without a failure."""
    at = 0
    while True:
        at += 1
        faults = Faults(**options)
        day = Day(disk(faults))
        faults.fail_at = faults.calls + at
        yield day, at
        if not faults.reached:
            assert at > 30, "the day has become too short"
            return


@pytest.mark.parametrize(
    ("error", "short", "reads"),
    [
        (errno.EIO, 0, True),
        (errno.EIO, 10**6, False),
        (errno.EMFILE, 0, True),
        (errno.ENOSPC, 0, True),
        (errno.ENOSPC, 30, False),
        (errno.ENOSPC, 61, False),
    ],
)
def test_any_call_may_fail_once(error, short, reads):
    for day, at in sweep(error=error, short=short, reads=reads):
        day.run()
        if not day.storage.faults.reached:
            assert not day.failures
        assert {error.code for error in day.failures if day.log} <= {
            ErrorCode.kafka_storage_error
        }
        day.storage.faults = Faults()
        if day.log is None:
            continue
        # All acknowledged records are readable, and no others.
        shown = values_of(day.log)
        expected = dict(enumerate(day.values))
        for offset in range(day.start, len(day.values)):
            assert shown.pop(offset) == expected[offset], at
        for offset in shown:
            assert offset < day.start or day.half_cut, at
        if not day.half_cut:
            day.log.check()
        # A restart of the process does not lose them either.
        again = open_log(day.storage.after_kill(), **CONFIG)
        for offset, value in expected.items():
            if offset >= again.log_start_offset:
                assert values_of(again)[offset] == value, at
        again.check()
        append_works(again)


@pytest.mark.parametrize("short", [0, 30, 10**6])
def test_the_process_may_die_at_any_call(short):
    for day, at in sweep(crash=True, short=short):
        run_until_it_dies(day)
        left = day.storage.after_kill()
        check_after(day, left, at, flushed=len(day.values))


@pytest.mark.parametrize("seed", range(6))
def test_the_machine_may_stop_at_any_call(seed):
    for day, at in sweep(crash=True, short=seed * 20):
        run_until_it_dies(day)
        left = day.storage.after_power_loss(random.Random(1000 * seed + at))
        check_after(day, left, at, flushed=day.flushed)


def run_until_it_dies(day):
    with suppress(Crashed):
        day.run()


def check_after(day, storage, at, *, flushed):
    """Check that flushed records are there in order, then a prefix of the others."""
    log = open_log(storage, **CONFIG)
    log.check()
    shown = values_of(log)
    assert log.log_end_offset >= flushed, at
    appended = [*day.values, day.under_way] if day.under_way else day.values
    if not day.half_cut:
        assert log.log_end_offset <= len(appended), at
        for offset, value in shown.items():
            assert value == appended[offset], at
    for offset in range(log.log_start_offset, flushed):
        assert shown[offset] == day.values[offset], at
    # The producer's batches are known after recovery, so that a retry is recognised.
    last = [o for o, v in shown.items() if v.startswith(b"idem")]
    if last:
        sequence = sum(v.startswith(b"idem") for v in appended[: last[-1]])
        retry = batch([shown[last[-1]]], producer_id=3, epoch=0, sequence=sequence)
        if not day.half_cut:
            assert log.append(retry, 0, NOW_MS).base_offset == last[-1], at
    append_works(log)


def append_works(log):
    end = log.log_end_offset
    assert log.append(batch([b"next"]), 0, NOW_MS).base_offset == end
    flushing.flush(log)
    log.check()
    assert values_of(log)[end] == b"next"


def test_a_full_disk_refuses_and_recovers():
    storage = disk()
    log = open_log(storage)
    log.append(batch([b"before"]), 0, NOW_MS)
    for short in (0, 20, 61, 68):
        storage.faults = Faults(1, error=errno.ENOSPC, short=short)
        with pytest.raises(KafkaError, match="No space left") as refused:
            log.append(batch([b"refused"]), 0, NOW_MS)
        assert refused.value.code is ErrorCode.kafka_storage_error
    log.append(batch([b"after"]), 0, NOW_MS)
    assert values_of(log) == {0: b"before", 1: b"after"}
    flushing.flush(log)
    again = open_log(storage.after_power_loss(random.Random(1)))
    assert values_of(again) == {0: b"before", 1: b"after"}


def test_an_epoch_begins_with_a_record_that_found_room():
    """A failed append records no leader epoch, since the epoch has no records.

    With such an epoch a follower was told to truncate for ever (swarm seed 15681).
    """
    storage = disk()
    log = open_log(storage)
    log.append(batch([b"before"]), 0, NOW_MS)
    storage.faults = Faults(1, error=errno.ENOSPC)
    with pytest.raises(KafkaError):
        log.append(batch([b"refused"]), 1, NOW_MS)
    assert log.epochs.latest == 0
    log.append(batch([b"after"]), 2, NOW_MS)
    assert [tuple(each) for each in log.epochs.entries()] == [(0, 0), (2, 1)]


def test_a_cut_at_the_end_forgets_an_epoch_without_records():
    """Its records were deleted. Kafka's ``UnifiedLog.truncateTo`` does the same."""
    log = open_log(disk())
    log.append(batch([b"a"]), 0, NOW_MS)
    log.append(batch([b"b"]), 3, NOW_MS)
    trimming.delete_records_before(log, 2)
    assert [tuple(each) for each in log.epochs.entries()] == [(3, 2)]
    assert truncate_to(log, 2, NOW_MS) == 2
    assert log.epochs.latest == -1
    log.check()


@pytest.mark.parametrize("then", ["append", "roll", "close"])
def test_bytes_of_a_failed_write_are_removed(then):
    """Bytes behind the end may form whole batches, which a recovery would accept."""
    storage = disk()
    log = open_log(storage)
    log.append(batch([b"before"]), 0, NOW_MS)
    storage.faults = Faults(1, short=10**6)
    with pytest.raises(KafkaError):
        log.append(batch([bytes(500)]), 0, NOW_MS)
    size = log.size_bytes
    first = f"{HOME}/00000000000000000000.log"
    assert storage.open(first).size() > size + 500
    if then == "append":
        size += len(batch([b"x"]))
        log.append(batch([b"x"]), 0, NOW_MS)
    elif then == "roll":
        log.roll(NOW_MS)
    else:
        flushing.settle(log)
    assert storage.open(first).size() == size


def test_after_a_failed_sync_nothing_more_is_promised():
    storage = disk()
    log = open_log(storage)
    log.append(batch([b"v"]), 0, NOW_MS)
    flushing.flush(log)
    log.append(batch([b"w"]), 0, NOW_MS)
    storage.faults = Faults(1)
    with pytest.raises(KafkaError, match="error"):
        flushing.flush(log)
    with pytest.raises(KafkaError, match="a flush failed"):
        flushing.flush(log)
    with pytest.raises(KafkaError, match="a flush failed"):
        log.append(batch([b"x"]), 0, NOW_MS)
    # Existing records remain readable.
    assert values_of(log) == {0: b"v", 1: b"w"}
