"""The logs of a broker: found after every kind of stop, and gone when deleted."""

import errno
import random
from contextlib import suppress
from uuid import UUID

import pytest

from broker.disk.files import RealStorage
from broker.disk.log_dirs import LogDirs
from broker.disk.memory import Crashed, Faults
from broker.disk.storage import join, read_whole
from broker.log import flushing, trimming
from broker.log import log_reading as reading
from broker.log.segments.log_config import LogConfig
from broker.log.steps import run
from broker.log.upkeep import rounds
from broker.log.upkeep.directory_names import stray_name
from broker.log.upkeep.log_cleaner import CleanerConfig, LogCleaner
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.periodic_task import CallsHere
from broker.protocol.errors import KafkaError, UncleanStop
from tests.broker.log.witness import (
    NOW_MS,
    batch,
    decoded,
    disk,
    everything,
    make_durably,
)

A, B, DOTS = ("a", 0), ("b", 3), ("with.dots-and_7", 12)
TOPIC_ID = UUID("12345678-1234-5678-1234-567812345678")
DIRECTORIES = ("/data/one", "/data/two")


def manager(storage, directories=DIRECTORIES[:1], configs=None):
    make_durably(storage, *directories)
    made = LogManager(
        LogDirs(directories),
        storage,
        config_of=lambda topic: (configs or {}).get(topic, LogConfig()),
        now_ms=lambda: NOW_MS,
    )
    made.open()
    return made


def close(made, high_watermarks):
    made.close(high_watermarks.get, CallsHere().run_all)


def refuse(path, error):
    raise AssertionError(path) from error


def checkpointed(made, high_watermarks):
    run(rounds.checkpoint(made, high_watermarks.get, print, refuse))


def removed(made):
    """Run a removal round after ``file.delete.delay.ms``."""
    made.now_ms = lambda: NOW_MS + 60_000
    run(rounds.removal(made, refuse))


def append(log, *values, epoch=0):
    for value in values:
        log.append(batch([value]), epoch, NOW_MS)


def values_of(log):
    return [record[3] for record in decoded(everything(log))]


def test_logs_are_found_again_after_an_orderly_stop():
    storage = disk()
    first = manager(storage)
    for key in (A, B, DOTS):
        append(first.open_log(key, TOPIC_ID), b"1", repr(key).encode())
    trimming.delete_records_before(first.logs[B], 1)
    close(first, {A: 2, B: 1})
    assert ".kafka_cleanshutdown" in storage.names("/data/one")
    again = manager(storage)
    assert sorted(again.logs) == [A, B, DOTS]
    assert values_of(again.logs[DOTS]) == [b"1", repr(DOTS).encode()]
    assert again.logs[B].log_start_offset == 1
    assert again.logs[B].recovery_point == 2
    assert again.high_watermarks == {A: 2, B: 1}
    assert again.topic_id(A) == TOPIC_ID
    # The clean shutdown marker is valid for one start only.
    assert ".kafka_cleanshutdown" not in storage.names("/data/one")


def test_the_directory_is_laid_out_as_kafkas():
    storage = disk()
    made = manager(storage)
    append(made.open_log(A, TOPIC_ID), b"v")
    close(made, {A: 1})
    home = "/data/one"
    assert storage.names(home) == [
        ".kafka_cleanshutdown",
        "a-0",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    content = read_whole(storage, join(home, "recovery-point-offset-checkpoint"))
    assert content == b"0\n1\na 0 1\n"
    assert read_whole(storage, join(home, "a-0/partition.metadata")) == (
        b"version: 0\ntopic_id: EjRWeBI0VngSNFZ4EjRWeA\n"
    )


def test_logs_are_recovered_after_a_kill():
    storage = disk()
    made = manager(storage)
    append(made.open_log(A, None), b"1", b"2")
    checkpointed(made, {A: 1})
    append(made.logs[A], b"3")
    left = storage.after_kill()
    file = left.open("/data/one/a-0/00000000000000000000.log")
    file.truncate(file.size() - 1)
    again = manager(left)
    assert values_of(again.logs[A]) == [b"1", b"2"]
    assert again.high_watermarks == {A: 1}


def test_new_logs_go_where_there_are_fewest():
    storage = disk()
    made = manager(storage, DIRECTORIES)
    for partition in range(5):
        append(made.open_log(("t", partition), None), b"v")
    assert made.open_log(("t", 0), None) is made.logs["t", 0]
    homes = [log.directory for log in made.logs.values()]
    assert homes == [
        "/data/one/t-0",
        "/data/two/t-1",
        "/data/one/t-2",
        "/data/two/t-3",
        "/data/one/t-4",
    ]
    close(made, {("t", n): 1 for n in range(5)})
    again = manager(storage, DIRECTORIES)
    assert sorted(again.logs) == sorted(made.logs)
    assert again.high_watermarks == {("t", n): 1 for n in range(5)}


def test_a_deleted_log_is_gone():
    storage = disk()
    made = manager(storage)
    log = made.open_log(A, TOPIC_ID)
    append(log, b"v")
    piece = reading.read(log, 0, 100, 1)
    content = piece.read()
    made.delete_log(A)
    made.delete_log(A)
    (kept,) = set(storage.names("/data/one"))
    assert kept == f"a-0.{UUID(int=1).hex}-delete"
    assert storage.names(f"/data/one/{kept}")
    removed(made)
    assert storage.names("/data/one") == []
    assert piece.read() == content
    assert made.topic_id(A) is None
    with pytest.raises(BlockingIOError, match="checkpoints"):
        made.open_log(A, None)
    run(made.checkpointing_deletions())
    assert made.open_log(A, None).log_end_offset == 0


def test_a_deletion_is_finished_after_a_crash():
    at, reached = 0, True
    while reached:
        at += 1
        storage = disk()
        made = manager(storage)
        append(made.open_log(A, TOPIC_ID), b"v")
        append(made.open_log(B, TOPIC_ID), b"v")
        faults = storage.faults = Faults(at, crash=True)
        with suppress(Crashed):
            made.delete_log(A)
            removed(made)
        reached = faults.reached
        again = manager(storage.after_kill())
        assert values_of(again.logs[B]) == [b"v"]
        # The rename commits the deletion.
        assert (A in again.logs) == (at == 1)
        removed(again)
        names = again.storage.names("/data/one")
        assert not [name for name in names if name.endswith("-delete")]
    assert at > 3


def test_longest_topic_names_can_be_deleted(tmp_path):
    made = manager(RealStorage(), [str(tmp_path)])
    key = ("t" * 249, 12345)
    append(made.open_log(key, None), b"v")
    made.delete_log(key)
    (kept,) = (path.name for path in tmp_path.iterdir())
    assert len(kept) == 255
    removed(made)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_other_directories_are_left_alone():
    storage = disk()
    for name in ("lost+found", "notes", "t-x"):
        storage.make_directory(f"/data/one/{name}")
    made = manager(storage)
    assert made.logs == {}
    close(made, {})
    assert {"lost+found", "notes", "t-x"} <= set(storage.names("/data/one"))


def test_settings_reach_every_log_of_a_topic():
    configs = {"a": LogConfig(max_message_bytes=70)}
    made = manager(disk(), configs=configs)
    log = made.open_log(A, None)
    with pytest.raises(KafkaError):
        append(log, b"much too long")
    configs["a"] = LogConfig()
    run(made.configure("a"))
    append(log, b"not too long now")


def test_clean_up_applies_retention_and_compaction():
    configs = {
        "a": LogConfig(retention_ms=0, segment_bytes=200),
        "b": LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=200),
    }
    made = manager(disk(), configs=configs)
    for key in (A, B):
        log = made.open_log(key, None)
        for number in range(10):
            sent = batch([bytes(50)], keys=[b"k"], timestamps=[NOW_MS - 1 - number])
            log.append(sent, 0, NOW_MS)
    run(rounds.retention(made, lambda key: 10, refuse))
    assert run(LogCleaner(made, CleanerConfig, lambda key: 10, refuse).round())
    assert made.logs[A].log_start_offset == 10
    assert [r[0] for r in decoded(everything(made.logs[B]))] == [8, 9]
    close(made, {})
    again = manager(made.storage, configs=configs)
    assert again.logs[B].cleaner_offset == made.logs[B].cleaner_offset > 0


def test_logs_are_due_for_a_flush_by_their_own_settings():
    configs = {"a": LogConfig(flush_messages=1)}
    made = manager(disk(), configs=configs)
    for key in (A, B):
        append(made.open_log(key, None), b"v")
    run(rounds.flush(made, refuse))
    assert {key: log.recovery_point for key, log in made.logs.items()} == {A: 1, B: 0}


def test_a_log_that_cannot_close_costs_its_directory_the_marker():
    storage = disk()
    made = manager(storage, DIRECTORIES)
    for partition in range(2):
        append(made.open_log(("t", partition), None), b"v")
    storage.faults = Faults(1)
    with pytest.raises(UncleanStop):
        close(made, {})
    assert ".kafka_cleanshutdown" not in storage.names("/data/one")
    assert ".kafka_cleanshutdown" in storage.names("/data/two")
    again = manager(storage, DIRECTORIES)
    assert [values_of(log) for log in again.logs.values()] == [[b"v"], [b"v"]]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_a_disk_that_is_short_costs_only_itself_the_marker(error):
    """Any call may find the first disk full; the other directory is closed in order."""
    at, reached = 0, True
    while reached:
        at += 1
        storage = disk()
        made = manager(storage, DIRECTORIES)
        for partition in range(2):
            append(made.open_log(("t", partition), None), b"v")
        faults = storage.faults = Faults(at, error=error, reads=True)
        with suppress(UncleanStop):
            close(made, {})
        reached = faults.reached
        storage.faults = Faults()
        marked = [
            home
            for home in DIRECTORIES
            if ".kafka_cleanshutdown" in storage.names(home)
        ]
        assert len(marked) >= 2 - reached, at
        again = manager(storage.after_kill(), DIRECTORIES)
        assert [values_of(log) for log in again.logs.values()] == [[b"v"], [b"v"]]
    assert marked == list(DIRECTORIES)
    assert at > 10


@pytest.mark.parametrize("power", [True, False])
def test_a_stop_may_be_interrupted_anywhere(power):
    """Flushed records are found again, with or without the clean shutdown marker."""
    at, reached = 0, True
    while reached:
        at += 1
        storage = disk()
        made = manager(storage, DIRECTORIES)
        for partition in range(2):
            log = made.open_log(("t", partition), None)
            append(log, b"flushed")
            flushing.flush(log)
            append(log, b"late")
        faults = storage.faults = Faults(at, crash=True, short=7)
        with suppress(Crashed):
            close(made, {})
        reached = faults.reached
        storage.faults = Faults()
        dice = random.Random(at)
        left = storage.after_power_loss(dice) if power else storage.after_kill()
        again = manager(left, DIRECTORIES)
        for partition in range(2):
            found = values_of(again.logs["t", partition])
            whole = [b"flushed", b"late"]
            assert found == whole or (power and reached and found == whole[:1]), at
            again.logs["t", partition].check()
    assert at > 20


def test_a_checkpoint_moves_recovery_points_without_a_flush_policy():
    now, storage = [NOW_MS], disk()
    make_durably(storage, "/data/one")
    made = LogManager(
        LogDirs(["/data/one"]),
        storage,
        config_of=lambda topic: LogConfig(segment_bytes=100),
        now_ms=lambda: now[0],
    )
    made.open()
    append(made.open_log(A, None), bytes(10), bytes(10))
    checkpointed(made, {})
    assert made.logs[A].recovery_point == 0
    now[0] += 60_000
    checkpointed(made, {})
    content = read_whole(made.storage, "/data/one/recovery-point-offset-checkpoint")
    assert content == b"0\n1\na 0 1\n"


@pytest.mark.parametrize("topic", ["a", "t" * 249])
def test_a_directory_set_aside_gets_an_unused_name(topic):
    first = stray_name((topic, 3), ())
    second = stray_name((topic, 3), {first})
    third = stray_name((topic, 3), {first, second})
    assert len({first, second, third}) == 3
    for name in (first, second, third):
        assert name.endswith("-stray")
        assert len(name) <= 255, "no file system has longer names"
