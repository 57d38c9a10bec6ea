"""Logs that move to another directory: the copy, the exchange, and stops in between.

The process or the machine stops at any call. The next start finds one log of the
partition: with all records after a kill, with all durable ones after a power loss. The
move continues or is finished.
"""

import errno
import random
from contextlib import suppress
from uuid import UUID

import pytest

from broker.disk.checkpoints import (
    CLEANER_OFFSETS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
)
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import Crashed, Faults
from broker.log import flushing, trimming
from broker.log.segments.log_config import LogConfig
from broker.log.steps import run
from broker.log.upkeep import moves, rounds
from broker.log.upkeep.log_cleaner import CleanerConfig, LogCleaner
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.moves import Moves
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition
from tests.broker.log.managing import Failures, everything_below, fill
from tests.broker.log.test_truncation_crashes import EPOCH_AT
from tests.broker.log.witness import (
    NOW_MS,
    altered,
    batch,
    decoded,
    disk,
    make_durably,
    stored,
    truncate_to,
)

ONE, TWO, THREE = "/data/one", "/data/two", "/data/three"
KEY = TopicPartition("a", 0)
SMALL = {"segment_bytes": 400, "index_interval_bytes": 100}
MINUTE_NS = 60_000_000_000


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """Use small pieces, so that logs of a few records are copied in several steps."""
    monkeypatch.setattr(moves, "_STEP_BYTES", 250)
    monkeypatch.setattr(moves, "_PIECE_BYTES", 1000)


class Unthrottled:
    """A quota that never throttles."""

    def __init__(self):
        self.count = 0

    def holds_back(self, key, *, in_sync):
        return False

    def note(self, key, count):
        self.count += count


class Disks:
    """Logs in three directories, and the moves between them."""

    def __init__(self, storage=None, homes=(ONE, TWO, THREE), config=SMALL):
        self.storage = storage or disk()
        self.storage.disks = homes
        for home in homes:
            make_durably(self.storage, home)
        self.now_ns = 0
        self.failures = Failures()
        self.config = config
        self.manager = LogManager(
            LogDirs(homes),
            self.storage,
            config_of=lambda topic: LogConfig(**self.config),
            now_ms=lambda: NOW_MS,
        )
        self.manager.open()
        self.throttle = Unthrottled()
        self.replaced = []
        self.moves = Moves(
            self.manager,
            self.throttle,
            lambda key, log: self.replaced.append(log),
            self.failures,
            now_ns=lambda: self.now_ns,
            pause_ns=lambda: 1_000_000_000,
        )

    @property
    def log(self):
        return self.manager.logs[KEY]

    def create(self, home=ONE):
        self.manager.preferred[KEY] = home
        return self.manager.open_log(KEY, UUID(int=7))

    def begin(self, home=TWO, number=1):
        self.manager.begin_future(KEY, home, UUID(int=number))
        return self.manager.futures[KEY]

    def finish(self, rounds_max=1000):
        """Run rounds until no move is left."""
        for _ in range(rounds_max):
            if not run(self.moves.round()):
                break
        assert not self.moves.any, (self.manager.futures, self.failures)

    def checkpoint(self):
        run(rounds.checkpoint(self.manager, lambda key: 0, print, self.failures))

    def again(self, storage, homes=(ONE, TWO, THREE)):
        return Disks(storage, homes, self.config)

    def names(self, home):
        return [name for name in self.storage.names(home) if "a-0" in name]


def values(log):
    found = []
    for segment in log.segments:
        for at, header in segment.headers():
            records = decoded(segment.file.read(at, header.size))
            found += [(offset, value) for offset, _, _, value in records]
    return [each for each in found if each[0] >= log.log_start_offset]


def filled(count=30, **options):
    disks = Disks(**options)
    fill(disks.create(), count)
    return disks


def test_a_log_moves_with_all_that_it_holds():
    disks = filled()
    before = disks.log
    content, epochs = values(before), before.epochs.entries()
    future = disks.begin()
    assert disks.names(TWO) == [f"a-0.{1:032x}-future"]
    disks.finish()
    assert disks.replaced == [future]
    assert disks.log is future is before.successor
    assert disks.log.directory == f"{TWO}/a-0"
    assert disks.names(TWO) == ["a-0"]
    assert [name.rpartition("-")[2] for name in disks.names(ONE)] == ["delete"]
    assert values(disks.log) == content
    assert disks.log.epochs.entries() == epochs
    assert disks.throttle.count == sum(segment.size for segment in future.segments)
    with pytest.raises(KafkaError):
        before.check_open()
    fill(disks.log, 5)
    disks.log.check()
    run(disks.manager.checkpointing_deletions())
    run(rounds.removal(disks.manager, disks.failures))
    assert not disks.failures
    again = disks.again(disks.storage.after_kill())
    assert values(again.log) == values(disks.log)
    assert again.manager.topic_id(KEY) == UUID(int=7)


def test_records_that_come_meanwhile_are_copied():
    disks = filled()
    disks.begin()
    count = 30
    while disks.moves.any:
        if disks.manager.futures:
            fill(disks.log, 3)
            count += 3
        assert run(disks.moves.round())
    assert count > 50
    assert [offset for offset, _ in values(disks.log)] == list(range(count))
    assert disks.log.home == TWO


def test_one_partition_moves_at_a_time_the_first_by_name():
    disks = Disks()
    keys = [TopicPartition("b", 0), TopicPartition("a", 1), TopicPartition("a", 0)]
    for number, key in enumerate(keys):
        disks.manager.preferred[key] = ONE
        fill(disks.manager.open_log(key, None), 5)
        disks.manager.begin_future(key, TWO, UUID(int=number))
    disks.finish()
    assert [log.name for log in disks.replaced] == ["a-0", "a-1", "b-0"]


def test_a_move_is_cancelled():
    disks = filled()
    future = disks.begin()
    run(disks.moves.round())
    disks.manager.remove_future(KEY)
    assert future.closed is not None
    assert not run(disks.moves.round())
    assert [name.rpartition("-")[2] for name in disks.names(TWO)] == ["delete"]
    assert disks.log.home == ONE
    fill(disks.log, 1)
    run(disks.manager.checkpointing_deletions())
    disks.begin(TWO, 2)
    disks.finish()
    assert disks.log.home == TWO


def test_a_cancelled_exchange_leaves_no_mark():
    disks = filled()
    disks.begin()
    steps = disks.moves.round()
    while disks.names(ONE) and "doorkeeper-moved-to" not in disks.storage.names(
        f"{ONE}/a-0"
    ):
        try:
            step = next(steps)
        except StopIteration:
            steps = disks.moves.round()
        else:
            if step is not None:
                step()
    steps.close()
    disks.manager.remove_future(KEY)
    assert "doorkeeper-moved-to" not in disks.storage.names(f"{ONE}/a-0")


@pytest.mark.parametrize("deleted", [1, 17, 30])
def test_a_start_that_moves_up_is_followed(deleted):
    disks = filled()
    disks.begin()
    run(disks.moves.round())
    trimming.delete_records_before(disks.log, deleted)
    content = values(disks.log)
    disks.finish()
    assert disks.log.log_start_offset == deleted
    assert values(disks.log) == content
    home = disks.storage
    assert read_offsets(home, TWO, LOG_START_OFFSETS)[KEY] == deleted
    assert values(disks.again(home.after_kill()).log) == content


def test_a_log_that_starts_within_a_batch():
    disks = Disks()
    log = disks.create()
    for _ in range(4):
        log.append(batch([b"x"] * 10), 0, NOW_MS)
    trimming.delete_records_before(log, 15)
    content = values(log)
    disks.begin()
    disks.finish()
    assert disks.log.log_start_offset == 15
    assert values(disks.log) == content


def test_an_empty_log_moves_with_its_offsets():
    disks = filled()
    trimming.delete_records_before(disks.log, 30)
    trimming.retention(disks.log, NOW_MS, 30)
    disks.begin()
    disks.finish()
    assert (disks.log.log_start_offset, disks.log.log_end_offset) == (30, 30)


def of_epoch(value, offset, epoch):
    sent = stored(batch([value]), base=offset)
    return altered(sent, {EPOCH_AT: ("i", epoch)}, new_crc=False)


@pytest.mark.parametrize("copied_rounds", [1, 2, 3])
def test_a_copy_begins_again_after_a_truncation(copied_rounds):
    disks = Disks()
    log = disks.create()
    for offset in range(20):
        log.append_as_follower(of_epoch(b"old", offset, 1), NOW_MS)
    disks.begin()
    for _ in range(copied_rounds):
        run(disks.moves.round())
        disks.checkpoint()
    if disks.log is log:
        run(disks.manager.lowering({KEY: 11}))
        truncate_to(log, 11, NOW_MS)
        for offset in range(11, 25):
            log.append_as_follower(of_epoch(b"new", offset, 2), NOW_MS)
        expected = [(n, b"old" if n < 11 else b"new") for n in range(25)]
    else:
        expected = [(n, b"old") for n in range(20)]
    disks.finish()
    assert values(disks.log) == expected
    assert not disks.failures


def test_idempotent_producers_and_transactions_move_along():
    disks = Disks()
    log = disks.create()
    for sequence in range(12):
        sent = batch([b"v"], producer_id=5, epoch=0, sequence=sequence)
        log.append(sent, 0, NOW_MS)
    repeated = batch([b"v"], producer_id=5, epoch=0, sequence=11)
    disks.begin()
    disks.finish()
    assert disks.log.append(repeated, 0, NOW_MS).base_offset == 11
    assert disks.log.log_end_offset == 12
    skipped = batch([b"v"], producer_id=5, epoch=0, sequence=14)
    with pytest.raises(KafkaError):
        disks.log.append(skipped, 0, NOW_MS)
    again = disks.again(disks.storage.after_kill())
    assert again.log.append(repeated, 0, NOW_MS).base_offset == 11


def test_a_verification_that_began_before_the_exchange_counts_after_it():
    disks = filled()
    guard = disks.log.producers.begin_verification(9, 0, 0, NOW_MS)
    disks.begin()
    disks.finish()
    sent = altered(batch([b"v"], producer_id=9, epoch=0, sequence=0), {21: ("h", 0x10)})
    disks.log.append(sent, 0, NOW_MS, guard=guard)
    assert disks.log.stable_below(disks.log.log_end_offset) == 30


def test_a_compacted_log_stays_clean_and_is_not_compacted_while_it_moves():
    config = {**SMALL, "cleanup_policy": frozenset({"compact"})}
    disks = filled(count=60, config=config)
    manager = disks.manager
    cleaner = LogCleaner(
        manager, CleanerConfig, everything_below(manager), disks.failures
    )
    assert run(cleaner.round())
    cleaned = disks.log.cleaner_offset
    fill(disks.log, 40)
    content = values(disks.log)
    disks.begin()
    assert not run(cleaner.round())
    disks.finish()
    assert disks.log.cleaner_offset == cleaned > 0
    assert values(disks.log) == content
    assert read_offsets(disks.storage, TWO, CLEANER_OFFSETS)[KEY] == cleaned
    again = disks.again(disks.storage.after_kill())
    assert (again.log.cleaner_offset, values(again.log)) == (cleaned, content)
    assert run(cleaner.round())


def test_a_compaction_under_way_ends_when_a_move_begins():
    config = {**SMALL, "cleanup_policy": frozenset({"compact"})}
    disks = filled(count=60, config=config)
    manager = disks.manager
    cleaner = LogCleaner(
        manager, CleanerConfig, everything_below(manager), disks.failures
    )
    under_way = cleaner.round()
    for _ in range(5):
        next(under_way)
    content = values(disks.log)
    disks.begin()
    run(under_way)
    assert (disks.log.cleaner_offset, values(disks.log)) == (0, content)


def test_the_checkpoints_are_those_of_the_new_directory():
    disks = filled()
    flushing.flush(disks.log)
    disks.checkpoint()
    assert read_offsets(disks.storage, ONE, RECOVERY_POINTS) == {KEY: 30}
    disks.begin()
    disks.finish()
    assert read_offsets(disks.storage, TWO, RECOVERY_POINTS) == {KEY: 30}
    disks.checkpoint()
    assert read_offsets(disks.storage, ONE, RECOVERY_POINTS) == {}
    assert read_offsets(disks.storage, TWO, RECOVERY_POINTS) == {KEY: 30}


def test_what_was_durable_stays_so_where_every_append_is_flushed():
    disks = filled(config={**SMALL, "flush_messages": 1})
    flushing.flush(disks.log)
    disks.begin()
    while disks.manager.futures:
        steps = disks.moves.round()
        with suppress(StopIteration):
            while True:
                step = next(steps)
                if step is not None:
                    step()
                if disks.manager.futures:
                    fill(disks.log, 1)
                    flushing.flush(disks.log)
    durable = len(values(disks.log))
    assert disks.log.recovery_point == durable
    disks.finish()
    for seed in range(20):
        left = disks.storage.after_power_loss(random.Random(seed))
        assert len(values(disks.again(left).log)) == durable


def test_a_deleted_topic_takes_its_copy_along():
    disks = filled()
    future = disks.begin()
    run(disks.moves.round())
    disks.manager.delete_log(KEY)
    assert future.closed is not None
    assert not run(disks.moves.round())
    assert not disks.failures
    assert not disks.again(disks.storage.after_kill()).manager.logs
    assert not disks.again(disks.storage.after_kill()).manager.futures


def test_a_topic_that_is_deleted_right_after_the_exchange_leaves_nothing():
    disks = filled()
    disks.begin()
    while not disks.manager.left:
        assert run(disks.moves.round())
    disks.manager.delete_log(KEY)
    disks.finish()
    for home in (ONE, TWO):
        assert all(name.endswith("-delete") for name in disks.names(home))


def test_a_move_back_at_once():
    disks = filled()
    content = values(disks.log)
    disks.begin()
    while not disks.manager.left:
        assert run(disks.moves.round())
    disks.begin(ONE, 2)
    disks.finish()
    assert (disks.log.home, values(disks.log)) == (ONE, content)
    again = disks.again(disks.storage.after_kill())
    assert (again.log.home, values(again.log)) == (ONE, content)


def test_a_failed_directory_ends_the_move_and_not_the_log():
    disks = filled()
    disks.begin()
    log_dirs = disks.manager.log_dirs
    log_dirs.take_offline(TWO, OSError(errno.EIO, "broken"))
    assert disks.manager.close_directory(TWO) == []
    assert not run(disks.moves.round())
    fill(disks.log, 1)
    with pytest.raises(KafkaError):
        disks.begin(THREE, 2)


def test_a_lost_log_leaves_its_copy_for_the_next_start():
    disks = filled()
    disks.begin()
    run(disks.moves.round())
    disks.manager.log_dirs.take_offline(ONE, OSError(errno.EIO, "broken"))
    assert disks.manager.close_directory(ONE) == [KEY]
    assert not run(disks.moves.round())
    again = disks.again(disks.storage.after_kill())
    assert KEY in again.manager.futures
    again.finish()
    assert again.log.home == TWO


def test_a_full_disk_delays_a_move():
    disks = filled()
    disks.begin()
    disks.storage.fill_up()
    assert run(disks.moves.round())
    assert len(disks.failures) == 1
    assert not run(disks.moves.round())
    assert not disks.manager.log_dirs.offline
    disks.storage.capacity_bytes = None
    disks.now_ns += MINUTE_NS
    disks.finish()
    assert disks.log.home == TWO


# ---- stops ----


def moved_until(disks, calls, *, fail_at, flushed):
    """Move a log and append to it until the disk stops."""
    disks.storage.faults = Faults(fail_at, crash=True)
    with suppress(Crashed):
        disks.begin()
        number = 0
        while disks.moves.any:
            run(disks.moves.round())
            number += 1
            if number in calls:
                fill(disks.log, 2)
                disks.written = disks.log.log_end_offset
            if number in flushed:
                flushing.flush(disks.log)
                disks.durable = disks.log.log_end_offset
        disks.checkpoint()
    return disks.storage.faults.reached


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_a_stop_at_any_call_leaves_one_log_with_everything(power):
    fail_at = 0
    reached = True
    while reached:
        fail_at += 1
        rng = random.Random(fail_at)
        disks = filled(12)
        flushing.flush(disks.log)
        trimming.delete_records_before(disks.log, 3)
        for call in disks.manager.keeping_starts([KEY]).values():
            call()
        disks.checkpoint()
        disks.written = disks.durable = disks.log.log_end_offset
        reached = moved_until(
            disks, {1, 2, 3, 4}, fail_at=fail_at, flushed={2, 4, 5, 6}
        )
        storage = disks.storage
        left = storage.after_power_loss(rng) if power else storage.after_kill()
        again = disks.again(left)
        found = values(again.log)
        least = disks.durable if power else disks.written
        offsets = [offset for offset, _ in found]
        assert offsets == list(range(3, len(found) + 3)), (fail_at, offsets)
        assert len(found) + 3 >= least, (fail_at, found)
        again.log.check()
        again.finish()
        assert values(again.log) == found, fail_at
        assert again.log.home in (ONE, TWO)
        fill(again.log, 1)
        last = again.again(again.storage.after_kill())
        assert values(last.log) == values(again.log), fail_at
    assert fail_at > 30


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_a_call_that_fails_loses_nothing(error):
    fail_at = 0
    reached = True
    while reached:
        fail_at += 1
        disks = filled(12)
        content = values(disks.log)
        disks.storage.faults = Faults(fail_at, error=error)
        with suppress(OSError, KafkaError):
            disks.begin()
        for _ in range(50):
            disks.now_ns += MINUTE_NS
            run(disks.moves.round())
            for home in disks.manager.log_dirs.take_failed():
                disks.manager.close_directory(home)
        reached = disks.storage.faults.reached
        again = disks.again(disks.storage.after_kill())
        assert values(again.log) == content, fail_at
        again.finish()
        assert values(again.log) == content, fail_at
    assert fail_at > 20


@pytest.mark.parametrize("missing", [ONE, TWO])
def test_a_start_without_one_of_the_directories_never_takes_the_older_log(missing):
    """Stop around the exchange; with both directories back, there is one log."""
    fail_at = 0
    reached = True
    while reached:
        fail_at += 1
        disks = filled(12)
        disks.written = disks.durable = 12
        reached = moved_until(disks, {3}, fail_at=fail_at, flushed=())
        left = disks.storage.after_kill()
        calls = Unreadable(missing)
        left.faults = calls
        without = disks.again(left)
        without.manager.log_dirs.take_failed()
        log = without.manager.logs.get(KEY)
        if log is not None:
            # The process may have stopped during an append.
            assert log.log_end_offset >= disks.written, fail_at
            fill(log, 1)
            disks.written = log.log_end_offset
        calls.broken = False
        again = disks.again(left.after_kill())
        assert again.log.log_end_offset >= disks.written, fail_at
        again.finish()


class Unreadable(Faults):
    """Fails every call in a directory while ``broken`` is set."""

    def __init__(self, directory):
        super().__init__(reads=True)
        self.directory = directory
        self.broken = True

    def count(self, call):
        if self.broken and self.directory in call:
            raise OSError(errno.EIO, "broken", call)
