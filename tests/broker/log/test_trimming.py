"""Retention, DeleteRecords and truncation remove the right records and no others."""

import random

import pytest

from broker.log import flushing, trimming
from broker.log.producers import Producers
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.managing import Calls
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    altered,
    batch,
    decoded,
    everything,
    found_at,
    found_newest,
    truncate_to,
)
from tests.broker.log.witness import open_log as open_plain

# A segment holds two batches of 100 bytes and one record each.
CONFIG = {"segment_bytes": 200, "index_interval_bytes": 90}


def filled(count=9, **config):
    log = open_plain(**{**CONFIG, **config})
    for number in range(count):
        sent = batch([b"%032d" % number], timestamps=[NOW_MS + number])
        log.append(sent, number // 4, NOW_MS)
    assert log.size_bytes == 100 * count
    return log


def offsets(log):
    return [record[0] for record in decoded(everything(log))]


def bases(log):
    return [segment.base_offset for segment in log.segments]


# ---- retention ----


@pytest.mark.parametrize(
    ("age_ms", "start"), [(0, 0), (1001, 0), (1002, 2), (1004, 4), (1007, 6), (1008, 8)]
)
def test_segments_go_when_their_newest_record_is_too_old(age_ms, start):
    log = filled(retention_ms=1000)
    trimming.retention(log, NOW_MS + age_ms, 9)
    assert (log.log_start_offset, bases(log)[0]) == (start, start)
    assert offsets(log) == list(range(start, 9))
    log.check()


def test_an_active_segment_that_is_too_old_rolls_first():
    log = filled(retention_ms=1000)
    assert trimming.retention(log, NOW_MS + 1009, 9) == 5
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (9, 9, [9])
    assert trimming.retention(log, NOW_MS + 9999, 9) == 0
    assert log.append(batch([b"v"]), 0, NOW_MS).base_offset == 9


@pytest.mark.parametrize(
    ("retained", "start"),
    [(900, 0), (701, 0), (700, 2), (501, 2), (500, 4), (101, 6), (100, 8), (0, 8)],
)
def test_segments_go_while_the_rest_is_large_enough(retained, start):
    """The active segment stays, at any limit."""
    log = filled(retention_bytes=retained, retention_ms=-1)
    trimming.retention(log, NOW_MS, 9)
    assert bases(log)[0] == start
    assert offsets(log) == list(range(start, 9))


@pytest.mark.parametrize(
    ("up_to", "left"),
    [(3, [2, 4, 6, 8]), (4, [4, 6, 8]), (5, [4, 6, 8]), (8, [8]), (9, [9])],
)
@pytest.mark.parametrize("limit", [{"retention_ms": 1000}, {"retention_bytes": 0}])
def test_nothing_goes_that_is_not_replicated(limit, up_to, left):
    log = filled(**{"retention_ms": -1, **limit})
    trimming.retention(log, NOW_MS + 10**6, up_to)
    if "retention_bytes" in limit and up_to == 9:
        left = [8]  # retention.bytes alone never removes the active segment.
    assert bases(log) == left


def test_retention_keeps_everything_without_limits_or_without_delete():
    for config in (
        {"retention_ms": -1},
        {"retention_ms": 0, "retention_bytes": 0, "cleanup_policy": frozenset()},
    ):
        log = filled(**config)
        assert trimming.retention(log, NOW_MS + 10**9, 9) == 0
        assert offsets(log) == list(range(9))


def test_records_without_timestamps_age_by_the_clock():
    log = open_plain(retention_ms=1000, **CONFIG)
    for _ in range(3):
        log.append(batch([bytes(32)], timestamps=[-1]), 0, NOW_MS + 500)
    trimming.retention(log, NOW_MS + 1000, 3)
    assert bases(log) == [0, 2]
    trimming.retention(log, NOW_MS + 1001, 3)
    assert bases(log) == [2]


def remove_doomed(log):
    while (path := log.doomed.take(0)) is not None:
        log.storage.remove(path)


def test_files_of_removed_segments_go_too():
    log = filled(retention_ms=1000)
    trimming.retention(log, NOW_MS + 1006, 9)
    remove_doomed(log)
    left = {name.split(".")[0] for name in log.storage.disk.names(HOME)}
    assert left == {
        "00000000000000000006",
        "00000000000000000008",
    }


def test_a_flush_makes_a_removal_durable():
    log = filled(retention_ms=1000)
    flushing.flush(log)
    trimming.retention(log, NOW_MS + 1006, 9)
    flushing.flush(log)
    for seed in range(9):
        left = log.storage.disk.after_power_loss(random.Random(seed))
        assert "00000000000000000004.log" not in left.names(HOME)


def test_epochs_begin_where_the_log_does():
    log = filled(retention_ms=1000)
    assert log.epochs.entries() == [(0, 0), (1, 4), (2, 8)]
    trimming.retention(log, NOW_MS + 1006, 9)
    assert log.epochs.entries() == [(1, 6), (2, 8)]


# ---- DeleteRecords ----


@pytest.mark.parametrize("offset", range(10))
def test_the_log_begins_at_the_reported_offset(offset):
    log = filled()
    trimming.delete_records_before(log, offset)
    assert log.log_start_offset == offset
    assert bases(log)[0] == min(offset // 2 * 2, 8)
    assert offsets(log) == list(range(offset, 9))
    trimming.delete_records_before(log, 0)
    assert log.log_start_offset == offset
    found = found_at(log, NOW_MS)
    assert (found.offset if found else 9) == offset
    log.check()


def test_the_log_does_not_begin_beyond_its_end():
    log = filled()
    for offset in (10, -1):
        with pytest.raises(KafkaError) as refused:
            trimming.delete_records_before(log, offset)
        assert refused.value.code is ErrorCode.offset_out_of_range
    assert log.log_start_offset == 0


# ---- truncation ----


@pytest.mark.parametrize("offset", range(10))
@pytest.mark.parametrize("flushed", [True, False])
def test_the_log_ends_at_the_reported_offset(offset, flushed):
    log = filled()
    if flushed:
        flushing.flush(log)
    assert truncate_to(log, offset, NOW_MS) == offset
    assert offsets(log) == list(range(offset))
    assert log.recovery_point == (offset if flushed else 0)
    assert log.epochs.latest == (offset - 1) // 4
    log.check()
    assert log.append(batch([b"new"]), 7, NOW_MS).base_offset == offset
    again = open_plain(log.storage.disk.after_kill(), **CONFIG)
    assert offsets(again) == list(range(offset + 1))
    again.check()


def test_a_batch_that_holds_the_offset_goes_as_a_whole():
    log = open_plain(**CONFIG)
    log.append(batch([b"a"] * 3), 0, NOW_MS)
    log.append(batch([b"b"] * 3), 0, NOW_MS)
    assert truncate_to(log, 4, NOW_MS) == 3
    assert (log.log_end_offset, offsets(log)) == (3, [0, 1, 2])


def test_a_gap_may_be_truncated_to():
    log = open_plain(**CONFIG)
    for offset in (0, 5):
        sent = altered(batch([b"v"]), {0: ("q", offset)}, new_crc=False)
        log.append_as_follower(sent, NOW_MS)
    assert truncate_to(log, 3, NOW_MS) == 3
    assert (log.log_end_offset, offsets(log)) == (3, [0])


def test_truncation_below_the_start_empties_the_log():
    log = filled()
    trimming.delete_records_before(log, 7)
    assert truncate_to(log, 3, NOW_MS) == 3
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (3, 3, [3])
    assert log.append(batch([b"v"]), 9, NOW_MS).base_offset == 3


def test_a_follower_may_begin_anew_further_on():
    log = filled()
    trimming.truncate_fully(log, 100, NOW_MS, Producers())
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (100, 100, [100])
    assert log.size_bytes == 0
    log.check()
    remove_doomed(log)
    named = [name[:20] for name in log.storage.names(HOME) if name[:20].isdigit()]
    assert set(named) == {f"{100:020d}"}
    again = open_plain(log.storage.disk.after_kill(), **CONFIG)
    assert (again.log_start_offset, again.log_end_offset) == (100, 100)


@pytest.mark.parametrize(
    ("how", "wanted"),
    [("retention", [(2, 9)]), ("DeleteRecords", [(1, 7), (2, 8)])],
)
def test_a_log_that_gets_shorter_at_its_start_syncs_nothing(how, wanted):
    """Opening the log removes the epochs before its start again."""
    log = filled(retention_ms=1000)
    storage = log.storage.disk
    flushing.flush(log)
    calls = storage.faults = Calls()
    if how == "retention":
        trimming.retention(log, NOW_MS + 5000, log.log_end_offset)
    else:
        trimming.delete_records_before(log, 7)
    assert not [name for name in calls.names if name.startswith("sync")]
    assert log.epochs.entries() == wanted
    again = open_plain(
        storage.after_kill(),
        opening={"log_start_offset": log.log_start_offset, "recovery_point": 9},
    )
    assert again.epochs.entries() == wanted


def test_a_log_that_was_cut_and_filled_to_its_old_end_is_settled_again():
    """Found by `test_log_model`: an orderly stop kept the time index of cut records."""

    def stopped(log):
        flushing.settle(log)
        return open_plain(log.storage.disk.after_kill(), opening={"clean": True})

    log = open_plain()
    log.append(batch([b"v"] * 2, timestamps=[NOW_MS, NOW_MS + 1]), 0, NOW_MS)
    log = stopped(log)
    truncate_to(log, 0, NOW_MS)
    log.append(batch([b"v"] * 2, timestamps=[NOW_MS, NOW_MS]), 0, NOW_MS)
    flushing.flush(log)
    log = stopped(log)
    log.check()
    assert found_newest(log)[:2] == (NOW_MS, 0)
