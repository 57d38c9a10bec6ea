"""A closed log refuses every operation."""

import inspect
from contextlib import suppress

import pytest

from broker.disk.disk_failures import LogStorageError, LogUnavailable
from broker.disk.memory import Faults
from broker.log import flushing, times, trimming
from broker.log import log_reading as reading
from broker.log.log import Log
from broker.log.producers import Producers
from broker.log.steps import run
from broker.log.transactions import Marker, marker_batch
from broker.log.upkeep import cleaner, mending
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.compacting import CONFIG, advance, put
from tests.broker.log.witness import NOW_MS, batch, open_log, values_of

# Queries of a log's state that touch no file.
QUESTIONS = {
    Log: {
        "check",
        "check_open",
        "epoch_end_offset",
        "size_bytes",
        "recovery_point",
        "stable_below",
    },
    # Works on a slice that `read` has returned.
    reading: {"aborted_in"},
    flushing: {"flush_due", "flushed"},
    cleaner: {"compaction_due", "dirty_ratio", "cleanable_end"},
}
CHANGES = {Log: {"close", "configure", "prepare", "begin", "moved"}}
ARGUMENTS = {
    "records": batch([b"v"]),
    "batch": marker_batch(7, 0, Marker(True, 0), NOW_MS),
    "leader_epoch": 0,
    "now_ms": NOW_MS,
    "offset": 1,
    "max_bytes": 100,
    "up_to_offset": 3,
    "timestamp": NOW_MS,
    "syncs": None,
    "begun": None,
    "snapshot": None,
    "producers": Producers(),
    "empty": Producers(),
}


def operations():
    """Yield all operations on a log, found in the modules that hold them."""
    for home in (Log, reading, flushing, times, trimming, mending, cleaner):
        known = QUESTIONS.get(home, set()) | CHANGES.get(home, set())
        for name, member in vars(home).items():
            if name.startswith("_") or not inspect.isfunction(member):
                continue
            first = next(iter(inspect.signature(member).parameters), None)
            ours = home is Log or member.__module__ == home.__name__
            if ours and first in ("self", "log") and name not in known:
                yield member


def called(operation, log):
    wanted = list(inspect.signature(operation).parameters.values())[1:]
    result = operation(
        log, *(ARGUMENTS[each.name] for each in wanted if each.default is each.empty)
    )
    return run(result) if inspect.isgenerator(result) else result


def failure(operation, log):
    """Return the error that an operation raises, None if it succeeds."""
    try:
        called(operation, log)
    except (OSError, KafkaError) as error:
        return error
    return None


@pytest.mark.parametrize("operation", list(operations()), ids=lambda it: it.__name__)
def test_every_operation_is_refused(operation):
    log = open_log(**CONFIG)
    put(log, *((b"k%d" % n, b"v") for n in range(20)))
    log.roll(NOW_MS)
    log.close("the log was deleted")
    faults = log.storage.disk.faults = Faults()
    with pytest.raises(LogUnavailable, match="the log was deleted") as refused:
        called(operation, log)
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert not faults.calls


def test_there_are_operations_to_try():
    names = {each.__name__ for each in operations()}
    assert {"append", "append_as_follower", "roll", "read", "flush", "mend"} <= names
    assert {"retention", "truncate_to", "compaction", "new_segment"} <= names
    assert len(names) > 14


@pytest.mark.parametrize(
    "operation",
    # `new_segment` is a part of other operations, which convert its errors.
    [each for each in operations() if each is not Log.new_segment],
    ids=lambda it: it.__name__,
)
def test_a_device_that_fails_has_one_name(operation):
    """Fail each disk call of an operation once, reads included."""
    at, reached = 0, True
    while reached:
        at += 1
        log = open_log(**{**CONFIG, "retention_ms": 0, "retention_bytes": 0})
        for number in range(20):
            put(log, (b"k%d" % number, b"v"))
        for segment in log.segments:
            # As after a restart: every lookup has to read the disk.
            segment.write_indexes()
            segment.remember_nothing()
        faults = log.storage.disk.faults = Faults(at, reads=True)
        met = failure(operation, log)
        assert not isinstance(met, OSError), at
        if isinstance(met, LogStorageError):
            assert (met.directory, met.log_dir) == ("/data/topic-0", "/data")
        reached = faults.reached


def test_slices_of_a_closed_log_stay_readable():
    log = open_log()
    log.append(batch([b"v"]), 0, NOW_MS)
    piece = reading.read(log, 0, 100, 1)
    content = piece.read()
    log.close("the log was deleted")
    assert piece.read() == content


def test_a_flush_under_way_ends_without_a_word_on_the_device():
    log = open_log()
    log.append(batch([b"v"]), 0, NOW_MS)
    syncs = flushing.due_syncs(log)
    log.close("the log was deleted")
    with suppress(LogUnavailable):
        syncs.run()
    flushing.flushed(log, syncs, NOW_MS)
    assert isinstance(log.durability.failed(OSError(5, "gone")), LogUnavailable)


def test_a_compaction_under_way_ends_and_leaves_the_namesake_alone():
    """Between two steps the log is deleted and a new one takes its directory."""
    steps = 0
    while True:
        steps += 1
        log = open_log(**CONFIG)
        for number in range(20):
            put(log, (b"k%d" % (number % 3), b"v%d" % number))
        work = cleaner.compaction(log, NOW_MS, log.log_end_offset)
        done = not advance(work, steps)
        disk = log.storage.disk
        log.close("the log was deleted")
        disk.rename("/data/topic-0", "/data/topic-0.x-delete")
        again = open_log(disk, **CONFIG)
        put(again, (b"k", b"new"))
        before = {name: disk.names(name) for name in ("/data", again.directory)}
        if not done:
            with pytest.raises(LogUnavailable):
                run(work)
        assert {name: disk.names(name) for name in before} == before
        assert values_of(again) == {0: b"new"}
        again.check()
        if done:
            break
    assert steps > 20


def test_a_closed_log_keeps_its_first_reason():
    log = open_log()
    log.close("the log was deleted")
    log.close("the broker is stopping")
    assert log.closed == "the log was deleted"
