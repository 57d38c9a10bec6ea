"""Logs written before records were validated, with wrong largest timestamps.

Recovery and compaction correct a segment's time index and its age for retention;
compaction also corrects the batch headers.
"""

import random

import pytest

from broker.log import trimming
from broker.log.flushing import settle
from broker.log.segments.log_config import LONG_MAX
from broker.log.steps import run
from broker.log.upkeep import cleaner
from tests.broker.log.witness import (
    NOW_MS,
    altered,
    batch,
    decoded,
    everything,
    found_at,
    found_newest,
    open_log,
    stored,
)

DAY_MS = 86_400_000
WRONG = [-1, 0, 1, LONG_MAX, "first"]


def written(seed, **config):
    """Return a log with wrong headers, and its (offset, timestamp) of each record."""
    rng = random.Random(seed)
    log = open_log(segment_bytes=1500, index_interval_bytes=200, **config)
    rows = []
    for number in range(60):
        times = [NOW_MS - rng.randrange(DAY_MS) for _ in range(rng.randint(1, 4))]
        keys = [b"k%d" % rng.randrange(100) for _ in times]
        sent = batch(
            [b"v%d" % number] * len(times),
            keys=keys,
            timestamps=times,
            codec=rng.randrange(5),
        )
        wrong = rng.choice([*WRONG, None])
        if wrong is not None:
            said = times[0] if wrong == "first" else wrong
            sent = altered(sent, {35: ("q", said)})
        offset = log.log_end_offset
        log.append_as_follower(stored(sent, base=offset), NOW_MS)
        rows += [(offset + at, time) for at, time in enumerate(times)]
    return rng, log, rows


def check_look_up(rng, log, rows, seed):
    for _ in range(30):
        wanted = rng.choice(rows)[1] + rng.randint(-2, 2)
        expected = next(((t, o) for o, t in rows if t >= wanted), None)
        found = found_at(log, wanted)
        assert (found and (found.timestamp, found.offset)) == expected, (seed, wanted)
    largest = max(time for _, time in rows)
    assert found_newest(log).timestamp == largest, seed


@pytest.mark.parametrize("seed", range(20))
def test_recovery_mends_look_up_by_time(seed):
    rng, log, rows = written(seed)
    log = open_log(log.storage.disk.after_kill())
    check_look_up(rng, log, rows, seed)
    log.check()


@pytest.mark.parametrize("seed", range(20))
def test_compaction_mends_look_up_and_headers(seed):
    rng, log, rows = written(seed, cleanup_policy=frozenset({"compact"}))
    log.roll(NOW_MS)
    run(cleaner.compaction(log, NOW_MS, log.log_end_offset))
    kept = {
        header.base_offset: header for s in log.segments for _, header in s.headers()
    }
    assert all(0 < each.max_timestamp <= NOW_MS for each in kept.values()), seed
    settle(log)
    log = open_log(log.storage.disk, opening={"clean": True})
    left = [(offset, time) for offset, time, _, _ in decoded(everything(log))]
    assert set(left) <= set(rows)
    check_look_up(rng, log, left, seed)
    log.check()


@pytest.mark.parametrize("wrong", [0, 1, LONG_MAX])
def test_retention_goes_by_the_records_once_recovered(wrong):
    for age_ms, left in ((8 * DAY_MS, 1), (6 * DAY_MS, 3)):
        log = open_log()
        for _ in range(2):
            sent = batch([b"v"], timestamps=[NOW_MS - age_ms])
            sent = altered(sent, {35: ("q", wrong)})
            base = log.log_end_offset
            log.append_as_follower(stored(sent, base=base), NOW_MS)
            log.roll(NOW_MS)
        log = open_log(log.storage.disk.after_kill())
        trimming.retention(log, NOW_MS, log.log_end_offset)
        assert len(log.segments) == left
