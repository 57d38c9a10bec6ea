"""Logs with a gap between two segments: lost, or left by compaction?

Seed 1011 of the swarm: power went after a roll, and took whole batches.
"""

import pytest

from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    batch,
    disk_with,
    offsets,
    open_log,
    stored,
)


@pytest.mark.parametrize("size", [None, *range(2 * len(stored(batch([b"a"]))))])
def test_a_log_whose_older_segment_lost_its_end_is_what_comes_before(size):
    """A loss of power may take whole batches, or the file, and leave what is newer."""
    one = len(stored(batch([b"a"])))
    files = {
        "00000000000000000000.log": stored(batch([b"a"])),
        "00000000000000000001.log": stored(batch([b"b"]), batch([b"c"]), base=1),
        "00000000000000000003.log": stored(batch([b"d"]), base=3),
    }
    if size is None:
        del files["00000000000000000001.log"]
    else:
        files["00000000000000000001.log"] = files["00000000000000000001.log"][:size]
    log = open_log(disk_with(files))
    assert offsets(log) == list(range(1 + (size or 0) // one))
    assert log.append(batch([b"next"]), 0, NOW_MS).base_offset == len(offsets(log)) - 1
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
def test_what_stands_behind_a_gap_stays_if_compaction_or_the_disk_made_it(
    opening, config
):
    files = {
        "00000000000000000000.log": stored(batch([b"a"])),
        "00000000000000000003.log": stored(batch([b"d"]), base=3),
    }
    log = open_log(disk_with(files), opening=opening, **config)
    assert (offsets(log), log.log_end_offset) == ([0, 3], 4)


def test_what_follows_a_gap_is_told_with_the_reason():
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
