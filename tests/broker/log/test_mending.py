"""A full disk at a flush: the log leaves service and returns without a loss.

The in-memory disk behaves like Linux: after a failed sync the next one succeeds and
writes none of the pages of the first. A log that only repeated the sync would lose
records at the next power loss; the first test would detect it.
"""

import errno
import random
from contextlib import suppress

import pytest

from broker.disk.memory import Faults
from broker.log import flushing
from broker.log.steps import run
from broker.log.upkeep import mending
from broker.protocol.errors import KafkaError
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    batch,
    disk,
    open_log,
    truncate_to,
    values_of,
)

CONFIG = {"segment_bytes": 300, "index_interval_bytes": 100}


def filled(fail_at, error=errno.ENOSPC, reads=False):
    """Return (disk, log, values): records flushed once, then a flush that fails."""
    storage = disk()
    log = open_log(storage, **CONFIG)
    values = {}
    for number in range(9):
        if number == 2:
            flushing.flush(log)
        values[number] = b"value %d" % number
        log.append(batch([values[number]]), 0, NOW_MS)
    assert len(log.segments) > 2
    storage.faults = Faults(fail_at, error=error, reads=reads)
    return storage, log, values


@pytest.mark.parametrize("again", [0, 1, 3])
def test_no_confirmed_record_is_lost_whichever_sync_fails(again):
    """The disk is still full for ``again`` attempts to mend, each one call later."""
    at, taken_up = 0, 0
    while True:
        at += 1
        storage, log, values = filled(at)
        with suppress(KafkaError):
            flushing.flush(log)
        reached = storage.faults.reached
        for attempt in range(again):
            storage.faults = Faults(attempt + 1, error=errno.ENOSPC)
            if log.durability.mendable:
                with pytest.raises(KafkaError):
                    run(mending.mend(log))
        storage.faults = Faults()
        if log.durability.out_of_service and not log.durability.mendable:
            continue  # directory entries, not file contents
        taken_up += run(mending.mend(log))
        values[9] = b"after"
        log.append(batch([b"after"]), 0, NOW_MS)
        flushing.flush(log)
        assert values_of(log) == values
        log.check()
        for seed in range(20):
            left = storage.after_power_loss(random.Random(seed))
            assert values_of(open_log(left, **CONFIG)) == values, (at, seed)
        if not reached:
            break
    assert taken_up > 3, "no sync was reached"


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE])
def test_for_want_of_a_descriptor_a_flush_fails_and_no_log_leaves_service(error):
    """The failed flush synced nothing and lost nothing; the next one syncs all."""
    at = 0
    while True:
        at += 1
        storage, log, values = filled(at, error, reads=True)
        with suppress(KafkaError):
            flushing.flush(log)
        if not storage.faults.reached:
            break
        assert log.durability.out_of_service is None, at
        flushing.flush(log)
        values[9] = b"after"
        log.append(batch([b"after"]), 0, NOW_MS)
        flushing.flush(log)
        for seed in range(10):
            left = storage.after_power_loss(random.Random(seed))
            assert values_of(open_log(left, **CONFIG)) == values, (at, seed)
    assert at > 4


def test_without_descriptors_a_log_is_mended_later():
    """Opening a file may fail while mending rewrites the log of a full disk."""
    at = 0
    while True:
        at += 1
        storage, log, values = filled(1)
        with pytest.raises(KafkaError):
            flushing.flush(log)
        assert log.durability.mendable
        storage.faults = Faults(at, error=errno.EMFILE, reads=True)
        with suppress(KafkaError):
            run(mending.mend(log))
        if not storage.faults.reached:
            break
        assert values_of(log) == values
        run(mending.mend(log))
        assert log.durability.out_of_service is None
        flushing.flush(log)
        log.check()
        for seed in range(10):
            left = storage.after_power_loss(random.Random(seed))
            assert values_of(open_log(left, **CONFIG)) == values, (at, seed)
    assert at > 2


def test_syncing_again_alone_would_lose_what_was_confirmed():
    """Mending without rewriting loses records on the in-memory disk."""
    storage, log, values = filled(0)
    flushing.flush(log)
    log.append(batch([b"unsynced"]), 0, NOW_MS)
    storage.faults = Faults(1, error=errno.ENOSPC)
    with pytest.raises(KafkaError):
        flushing.flush(log)
    storage.faults = Faults()
    log.durability.take_up()
    flushing.flush(log)
    kept = [
        values_of(open_log(storage.after_power_loss(random.Random(seed)), **CONFIG))
        == values
        for seed in range(20)
    ]
    assert not all(kept)


@pytest.mark.parametrize("piece_bytes", [1, 64, 250, 1 << 20])
def test_a_segment_of_many_pieces_is_written_again_to_its_end(monkeypatch, piece_bytes):
    monkeypatch.setattr(mending, "_CHUNK_BYTES", piece_bytes)
    storage, log, values = filled(1)
    with pytest.raises(KafkaError):
        flushing.flush(log)
    undurable = [*log.durability.unflushed, log.segments.active]
    pieces = sum(-(-segment.size // piece_bytes) for segment in undurable)
    written = []
    storage.faults = Faults()
    storage.faults.count = lambda call: written.append(call)
    assert run(mending.mend(log))
    assert (
        sum(call.startswith("write") and ".log" in call for call in written) == pieces
    )
    for seed in range(20):
        left = storage.after_power_loss(random.Random(seed))
        assert values_of(open_log(left, **CONFIG)) == values, seed


def test_an_error_of_the_device_is_final():
    storage, log, _ = filled(1, errno.EIO)
    with pytest.raises(KafkaError):
        flushing.flush(log)
    storage.faults = Faults()
    assert not run(mending.mend(log))
    with pytest.raises(KafkaError, match="a flush failed"):
        log.append(batch([b"x"]), 0, NOW_MS)


def test_unreadable_records_keep_a_log_out_of_service():
    storage, log, values = filled(1)
    with pytest.raises(KafkaError):
        flushing.flush(log)
    storage.faults = Faults()
    last = log.segments.active
    # The kernel has dropped the page; a read returns the bytes on disk.
    lost = last.file.read(last.size - 4, 4)
    last.file.write(last.size - 4, (bytes(4),), 4)
    with pytest.raises(KafkaError, match="CRC"):
        run(mending.mend(log))
    with pytest.raises(KafkaError, match="a flush failed"):
        log.append(batch([b"x"]), 0, NOW_MS)
    last.file.write(last.size - 4, (lost,), 4)
    assert run(mending.mend(log))
    assert values_of(log) == values


def test_a_flush_under_way_proves_nothing_once_another_failed():
    storage, log, _ = filled(0)
    recovery_point = log.recovery_point
    under_way = flushing.due_syncs(log)
    storage.faults = Faults(1, error=errno.ENOSPC)
    with pytest.raises(KafkaError):
        flushing.flush(log)
    under_way.run()
    flushing.flushed(log, under_way, NOW_MS)
    assert log.recovery_point == recovery_point


def test_a_flush_under_way_proves_nothing_once_the_log_was_cut_and_another_failed():
    storage, log, _ = filled(0)
    under_way = flushing.due_syncs(log)
    truncate_to(log, log.recovery_point + 1, NOW_MS)
    recovery_point = log.recovery_point
    storage.faults = Faults(1, error=errno.ENOSPC)
    with pytest.raises(KafkaError):
        flushing.flush(log)
    under_way.run()
    flushing.flushed(log, under_way, NOW_MS)
    assert log.recovery_point == recovery_point < log.log_end_offset


def test_readers_find_everything_while_it_is_out_of_service():
    storage, log, values = filled(1)
    with pytest.raises(KafkaError):
        flushing.flush(log)
    assert values_of(log) == values
    storage.faults = Faults(1, error=errno.ENOSPC)
    with pytest.raises(KafkaError):
        run(mending.mend(log))
    assert values_of(log) == values
    assert f"{HOME}: " in log.durability.out_of_service
