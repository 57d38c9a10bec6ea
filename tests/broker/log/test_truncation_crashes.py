"""A follower's log is truncated and written again, then killed or loses power.

Each run appends, truncates, rolls, flushes and writes checkpoints at random, until the
process or the machine stops at some call. The next start must find a prefix of a state
that the log had since its last flush: never records of two histories, and no leader
epoch without its records.
"""

import random
from contextlib import suppress

import pytest

from broker.disk.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from broker.disk.memory import Crashed, Faults
from broker.log import flushing, trimming
from broker.log.steps import run
from broker.log.upkeep.cleaner import compaction
from broker.log.upkeep.rounds import checkpoint
from tests.broker.log.managing import HOME, A, Failures, fill, open_logs
from tests.broker.log.witness import (
    NOW_MS,
    altered,
    batch,
    decoded,
    stored,
    truncate_to,
)
from tests.seeds import seeds

CONFIG = {"segment_bytes": 400, "index_interval_bytes": 100}
EPOCH_AT = 12


class Follower:
    """A log and its history; ``states`` are the contents allowed after a stop."""

    def __init__(self, rng):
        self.rng = rng
        self.written = 0
        self.epoch = 0
        self.start(None)

    def start(self, storage):
        self.manager = open_logs(CONFIG, storage=storage, keys=(A,))
        self.log = self.manager.logs[A]
        self.content = content_of(self.log)
        self.states = [list(self.content)]
        # Number of durable records.
        self.flushed = min(self.log.recovery_point, len(self.content))

    def live(self):
        while True:
            kind = self.rng.random()
            if kind < 0.7:
                self.append()
            elif kind < 0.8 and self.content:
                self.truncate()
            elif kind < 0.85:
                flushing.flush(self.log)
                self.flushed = len(self.content)
                self.states = [list(self.content)]
            elif kind < 0.95:
                self.checkpoint()
            else:
                self.log.roll(NOW_MS)

    def append(self):
        self.epoch += self.rng.random() < 0.2
        self.written += 1
        value = b"%d %s" % (self.written, bytes(self.rng.choice([1, 60])))
        sent = stored(batch([value]), base=len(self.content))
        sent = altered(sent, {EPOCH_AT: ("i", self.epoch)}, new_crc=False)
        self.content.append((self.epoch, value))
        self.states.append(list(self.content))
        self.log.append_as_follower(sent, NOW_MS)

    def truncate(self):
        end = self.rng.randrange(max(len(self.content) - 12, 0), len(self.content))
        self.flushed = min(self.flushed, end)
        run(self.manager.lowering({A: end}))
        assert truncate_to(self.log, end, NOW_MS) == end
        del self.content[end:]
        self.states.append(list(self.content))
        # The new leader's records may have an older epoch than the truncated ones.
        kept = self.content[-1][0] if end else 0
        self.epoch = self.rng.randint(kept, self.epoch + 1)

    def checkpoint(self):
        failures = Failures()
        self.manager.now_ms = lambda: NOW_MS + 60_000
        run(checkpoint(self.manager, lambda key: 0, lambda log: None, failures))
        assert not failures
        self.flushed = max(self.flushed, self.log.recovery_point)

    def check(self):
        found = content_of(self.log)
        assert any(found == each[: len(found)] for each in self.states), found
        assert len(found) >= self.flushed
        starts = {}
        for offset, (epoch, _) in enumerate(found):
            starts.setdefault(epoch, offset)
        assert self.log.epochs.entries() == sorted(starts.items())
        self.log.check()


def content_of(log):
    """Return the epoch and value of each record."""
    found = []
    for segment in log.segments:
        for at, header in segment.headers():
            assert header.base_offset == len(found)
            ((_, _, _, value),) = decoded(segment.file.read(at, header.size))
            found.append((header.partition_leader_epoch, value))
    return found


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("seed", seeds(16, 40))
def test_no_stop_mixes_what_was_cut_with_what_came_after(seed, power):
    rng = random.Random(seed)
    follower = Follower(rng)
    for _ in range(4):
        storage = follower.manager.storage
        storage.faults = Faults(rng.randint(1, 400), crash=True)
        with suppress(Crashed):
            follower.live()
        left = storage.after_power_loss(rng) if power else storage.after_kill()
        states, flushed = follower.states, follower.flushed
        follower.start(left)
        follower.states, follower.flushed = states, flushed
        follower.check()
        follower.epoch = max((epoch for epoch, _ in follower.content), default=0)
        follower.states = [list(follower.content)]
        follower.flushed = 0


def test_a_recovery_point_is_lowered_on_disk_before_a_log_is_cut():
    manager = open_logs({"segment_bytes": 400})
    log = manager.logs[A]
    fill(log, 20)
    flushing.flush(log)
    run(manager.checkpoint(lambda key: 0))
    assert read_offsets(manager.storage, HOME, RECOVERY_POINTS)[A] == 20
    (call,) = manager.lowering({A: 7})
    call()
    floor = trimming.recovery_floor(log, 7)
    assert read_offsets(manager.storage, HOME, RECOVERY_POINTS)[A] == floor <= 7
    assert list(manager.lowering({A: 7})) == []


def test_a_cleaner_offset_is_lowered_on_disk_before_a_log_is_cut():
    """As in Kafka, to the base offset of the active segment after the truncation."""
    manager = open_logs({"segment_bytes": 400, "cleanup_policy": {"compact"}})
    log = manager.logs[A]
    fill(log, 20)
    run(compaction(log, NOW_MS, log.log_end_offset))
    cleaned = log.cleaner_offset
    run(manager.checkpoint(lambda key: 0))
    assert read_offsets(manager.storage, HOME, CLEANER_OFFSETS)[A] == cleaned > 7
    run(manager.lowering({A: 7}))
    truncate_to(log, 7, NOW_MS)
    base = log.segments.active.base_offset
    # Append more records than the cleaner had seen, then kill the process.
    fill(log, 20)
    flushing.flush(log)
    assert read_offsets(manager.storage, HOME, CLEANER_OFFSETS)[A] == base <= 7
    left = manager.storage.after_kill()
    found = open_logs({"cleanup_policy": {"compact"}}, storage=left, keys=())
    assert found.logs[A].cleaner_offset == base


def test_a_flush_under_way_does_not_raise_a_recovery_point_that_was_lowered():
    manager = open_logs({"segment_bytes": 400})
    log = manager.logs[A]
    fill(log, 20)
    syncs = flushing.due_syncs(log)
    syncs.run()
    log.durability.lower(0)
    flushing.flushed(log, syncs, NOW_MS)
    assert log.recovery_point == 0


def test_a_log_that_lost_its_end_is_not_believed_beyond_it_later():
    """Opening the log lowers the recovery point on disk before any write."""
    manager = open_logs({"segment_bytes": 400})
    log = manager.logs[A]
    fill(log, 20)
    flushing.flush(log)
    run(manager.checkpoint(lambda key: 0))
    log.segments.active.file.truncate(10)
    left = manager.storage.after_kill()
    again = open_logs({"segment_bytes": 400}, storage=left)
    end = again.logs[A].log_end_offset
    assert end < 20
    assert read_offsets(left, HOME, RECOVERY_POINTS)[A] == end
