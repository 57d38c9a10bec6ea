"""Logs with an offset gap between two segments, from a loss or from compaction.

Seed 1011 of the swarm: a power loss after a roll removed whole batches.
"""

import random

import pytest

from broker.log.segments.log_config import LogConfig
from broker.log.steps import run
from broker.log.upkeep import cleaner
from tests.broker.log import compacting
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    batch,
    disk_with,
    offsets,
    open_log,
    stored,
    truncate_to,
)


def test_a_log_whose_older_segment_lost_its_end_is_what_comes_before():
    """A power loss may remove whole batches or a file and keep newer segments."""
    one = len(stored(batch([b"a"])))
    older = stored(batch([b"b"]), batch([b"c"]), base=1)
    for size in (None, *range(2 * one)):
        files = {
            "00000000000000000000.log": stored(batch([b"a"])),
            "00000000000000000003.log": stored(batch([b"d"]), base=3),
        }
        if size is not None:
            files["00000000000000000001.log"] = older[:size]
        log = open_log(disk_with(files))
        found = offsets(log)
        assert found == list(range(1 + (size or 0) // one)), size
        assert log.append(batch([b"next"]), 0, NOW_MS).base_offset == len(found), size
        log.check()


@pytest.mark.parametrize(
    ("opening", "config"),
    [
        ({}, {"cleanup_policy": frozenset({"compact"})}),
        ({}, {"cleanup_policy": frozenset()}),
        ({"cleaner_offset": 3}, {}),
        ({"recovery_point": 3}, {}),
    ],
    ids=["compacts", "is not known", "was compacted", "all was on disk"],
)
def test_records_behind_a_gap_of_compaction_or_the_disk_are_kept(opening, config):
    files = {
        "00000000000000000000.log": stored(batch([b"a"])),
        "00000000000000000003.log": stored(batch([b"d"]), base=3),
    }
    log = open_log(disk_with(files), opening=opening, **config)
    assert (offsets(log), log.log_end_offset) == ([0, 3], 4)


def test_records_after_a_gap_are_reported_with_the_reason():
    files = {
        "00000000000000000000.log": stored(batch([b"a"])),
        "00000000000000000003.log": stored(batch([b"d"]), base=3),
    }
    losses = []
    open_log(disk_with(files), opening={"report": losses.append})
    (told,) = losses
    assert told.path == f"{HOME}/00000000000000000003.log"
    assert told.size == len(stored(batch([b"d"])))
    assert told.reason.endswith("before it ends at 1")


def killed(log, **opening):
    """Return the log after a restart, under cleanup.policy=delete."""
    left = log.storage.disk.after_kill()
    return open_log(left, opening=opening, segment_bytes=300)


@pytest.mark.parametrize("seed", range(20))
def test_records_from_a_compacted_leader_outlive_kills(seed):
    """The topic was compacted on the leader, is now ``delete``; nothing is synced."""
    rng = random.Random(seed)
    log = open_log(segment_bytes=300)
    written, offset = [], rng.choice([0, 5])
    for _ in range(30):
        offset += rng.choice([0, 0, 1, 7, 1000])
        log.append_as_follower(stored(batch([b"v"]), base=offset), NOW_MS)
        written.append(offset)
        offset += 1
        if rng.random() < 0.1:
            cut = rng.choice(written)
            truncate_to(log, cut, NOW_MS)
            written = [each for each in written if each < cut]
            offset = log.log_end_offset
        if rng.random() < 0.1:
            log = killed(log)
        assert offsets(log) == written, seed
    log = killed(killed(log))
    assert offsets(log) == written
    log.check()


def test_a_gap_of_more_offsets_than_a_segment_has_outlives_a_kill():
    log = open_log()
    for base in (0, 2**31 + 5, 2**33):
        log.append_as_follower(stored(batch([b"v"]), base=base), NOW_MS)
    log = killed(log)
    assert offsets(log) == [0, 2**31 + 5, 2**33]


@pytest.mark.parametrize("rounds", range(1, 8))
def test_compacted_records_outlive_kills_under_another_policy(rounds):
    """Kill the broker anywhere in the compaction, with no checkpoint written since."""
    log = open_log(**compacting.CONFIG)
    for number in range(40):
        compacting.put(log, (b"%d" % (number % 3), b"%d" % number))
    before = compacting.records(log)
    log.roll(NOW_MS)
    work = cleaner.compaction(log, NOW_MS, log.log_end_offset)
    compacting.advance(work, 10 * rounds)
    log.configure(LogConfig(segment_bytes=500))
    kept = compacting.records(log)
    left = killed(log)
    assert compacting.records(left) == kept
    assert compacting.records(killed(left)) == kept
    work.close()
    assert kept[-1] == before[-1]


def test_a_gap_that_was_taken_over_while_the_topic_was_unknown_stays():
    """The directory is Kafka's, copied after a kill, then adopted as ``delete``."""
    files = {
        "00000000000000000000.log": stored(batch([b"a"])),
        "00000000000000000003.log": stored(batch([b"d"]), base=3),
    }
    log = open_log(disk_with(files), cleanup_policy=frozenset())
    assert offsets(killed(log)) == [0, 3]


def test_a_cleaner_offset_beyond_the_end_says_nothing_of_the_log():
    log = open_log(**compacting.CONFIG)
    for number in range(40):
        compacting.put(log, (b"%d" % (number % 3), b"%d" % number))
    log.roll(NOW_MS)
    left = log.storage.disk.after_kill()
    log = open_log(left, opening={"cleaner_offset": 1000}, **compacting.CONFIG)
    assert log.cleaner_offset == 0
    run(cleaner.compaction(log, NOW_MS, log.log_end_offset))
    assert [key for _, key, _ in compacting.records(log)] == [b"1", b"2", b"0"]
