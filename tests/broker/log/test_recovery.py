"""Opening logs after a crash, a bit flip or a stop of Kafka."""

import random

import pytest

from broker.disk.memory import MemoryStorage
from broker.disk.storage import join, read_whole
from broker.log import flushing
from broker.log import log_reading as reading
from broker.log.segments import repair
from broker.protocol.records.batch import HEADER_SIZE
from tests.broker.log.witness import (
    HOME,
    NOW_MS,
    batch,
    decoded,
    disk_with,
    everything,
    found_at,
    found_newest,
    offsets,
    open_log,
    stored,
)

FIRST = "00000000000000000000.log"
CONFIG = {"index_interval_bytes": 120}


def test_a_tail_torn_at_any_byte_is_cut_off():
    whole = stored(batch([b"a", b"b"]), batch([b"c" * 30]), batch([b"d"] * 3))
    for size in range(len(whole) + 1):
        log = open_log(disk_with({FIRST: whole[:size]}), **CONFIG)
        kept = decoded_prefix(whole[:size])
        assert offsets(log) == kept, size
        assert log.log_end_offset == len(kept)
        log.check()
        log.append(batch([b"next"]), 0, NOW_MS)
        assert offsets(log) == [*kept, len(kept)]


def decoded_prefix(content):
    """Return the offsets of the whole batches, by their length fields alone."""
    found, position = [], 0
    while len(content) - position >= HEADER_SIZE:
        size = int.from_bytes(content[position + 8 : position + 12]) + 12
        if position + size > len(content):
            break
        base = int.from_bytes(content[position : position + 8])
        count = int.from_bytes(content[position + 57 : position + 61])
        found += range(base, base + count)
        position += size
    return found


def test_a_bit_flipped_anywhere_ends_the_log_there():
    first, second = stored(batch([b"a"])), stored(batch([b"b"], codec=1), base=1)
    whole = first + second + stored(batch([b"c"]), base=2)
    # The CRC does not cover the partition leader epoch.
    harmless = {position for start in (0, len(first)) for position in range(12, 16)}
    for position in range(len(first), len(first) + len(second)):
        if position - len(first) in harmless:
            continue
        for bit in (0, 7):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            log = open_log(disk_with({FIRST: bytes(damaged)}))
            # The CRC does not cover the base offset either, but offsets must increase.
            if position - len(first) < 8:
                assert offsets(log)[:1] == [0]
            else:
                assert offsets(log) == [0], (position, bit)
            log.check()


def test_zeros_behind_the_end_are_cut_off():
    """Some file systems leave zeros after a power loss; preallocation does too."""
    whole = stored(batch([b"a"]))
    log = open_log(disk_with({"00000000000000000000.log": whole + bytes(4096)}))
    assert (offsets(log), log.size_bytes) == ([0], len(whole))


def test_a_batch_read_in_pieces_is_checked(monkeypatch):
    batches = [batch([b"%d" % number * 30]) for number in range(8)]
    whole = stored(*batches)
    monkeypatch.setattr(repair, "_READ_BYTES", 2 * len(batches[0]) + 5)
    assert offsets(open_log(disk_with({FIRST: whole}), **CONFIG)) == list(range(8))
    flipped = bytearray(whole)
    flipped[5 * len(batches[0]) - 1] ^= 1
    assert offsets(open_log(disk_with({FIRST: bytes(flipped)}), **CONFIG)) == [
        *range(4)
    ]


def test_a_batch_that_reaches_into_the_next_segment_is_cut_off():
    first = stored(batch([b"a"]), batch([b"b", b"c"]))
    second = stored(batch([b"d"]), base=2)
    log = open_log(disk_with({FIRST: first, f"{2:020}.log": second}), **CONFIG)
    # The second batch ends with offset 2, which the next segment has.
    assert offsets(log) == [0]


def test_segments_behind_a_torn_one_are_dropped():
    storage = disk_with(
        {
            "00000000000000000000.log": stored(batch([b"a"]), batch([b"b"]))[:-1],
            "00000000000000000002.log": stored(batch([b"c"]), base=2),
            "00000000000000000002.index": b"",
        }
    )
    log = open_log(storage)
    assert (offsets(log), log.log_end_offset) == ([0], 1)
    assert "00000000000000000002.log" not in storage.names(HOME)
    assert "00000000000000000002.index" not in storage.names(HOME)


@pytest.fixture
def closed():
    """Return a log of several segments after an orderly stop."""
    log = open_log(segment_bytes=500, **CONFIG)
    for number in range(20):
        values, times = [b"%d" % number, b""], [NOW_MS + number, NOW_MS]
        log.append(batch(values, timestamps=times), number // 8, NOW_MS)
    flushing.settle(log)
    return log


def reopen(log, **opening):
    storage = log.storage.disk.after_kill()
    return open_log(storage, opening=opening, segment_bytes=500, **CONFIG)


INDEXES = [
    name
    for base in (0, 12)
    for name in (f"{base:020d}.index", f"{base:020d}.timeindex")
]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: None,
        lambda content: b"",
        lambda content: content[:-1],
        lambda content: content + bytes(240),
        lambda content: content[::-1],
    ],
    ids=["gone", "empty", "short", "zeros", "nonsense"],
)
def test_a_damaged_index_is_built_again(closed, clean, name, damage):
    storage, content = closed.storage.disk, everything(closed)
    path = join(HOME, name)
    good = read_whole(storage, path)
    assert len(good) > 0
    bad = damage(good)
    storage.remove(path)
    if bad is not None:
        storage.open(path, create=True).write(0, (bad,), len(bad))
    log = reopen(closed, clean=clean)
    assert everything(log) == content
    if bad == b"" and clean:
        # An empty index is valid, only slow; Kafka accepts it too.
        return
    log.check()
    flushing.settle(log)
    assert read_whole(log.storage.disk, path) == good


def test_an_orderly_stop_is_believed_and_costs_few_reads(closed):
    log = reopen(closed, clean=True)
    assert log.log_end_offset == 40
    assert log.recovery_point == 40
    assert log.epochs.entries() == [(0, 0), (1, 16), (2, 32)]
    assert everything(log) == everything(closed)
    log.check()


@pytest.mark.parametrize("seed", range(12))
def test_an_orderly_stop_outlives_a_power_loss(closed, seed):
    """An orderly stop syncs all files that the next start trusts, indexes included."""
    left = closed.storage.disk.after_power_loss(random.Random(seed))
    log = open_log(left, opening={"clean": True}, segment_bytes=500, **CONFIG)
    assert everything(log) == everything(closed)
    for kind in ("offset_index", "time_index"):
        ours, theirs = (getattr(each.segments.active, kind) for each in (log, closed))
        assert ours.last() == theirs.last()
    log.check()


def test_everything_is_derived_again_from_the_log_alone(closed):
    storage = closed.storage.disk.after_kill()
    for name in storage.names(HOME):
        if not name.endswith(".log"):
            storage.remove(join(HOME, name))
    log = open_log(storage, segment_bytes=500, **CONFIG)
    assert everything(log) == everything(closed)
    assert log.epochs.entries() == [(0, 0), (1, 16), (2, 32)]
    for time in range(21):
        wanted = NOW_MS + time
        assert found_at(log, wanted) == found_at(closed, wanted)
    log.check()


def test_below_the_recovery_point_only_the_damaged_segment_suffers(closed):
    """A flipped bit in a durable segment must not remove the segments after it."""
    storage = closed.storage.disk.after_kill()
    path = join(HOME, "00000000000000000012.log")
    storage.open(path).write(200, (b"\xff",), 1)
    storage.remove(join(HOME, "00000000000000000012.index"))
    log = open_log(storage, opening={"recovery_point": 40}, segment_bytes=500, **CONFIG)
    assert log.log_end_offset == 40
    found = offsets(log)
    assert found[:14] == list(range(14))
    assert found[-16:] == list(range(24, 40))


def test_a_start_offset_beyond_what_is_left_empties_the_log():
    storage = disk_with({"00000000000000000000.log": stored(batch([b"a"]))})
    log = open_log(storage, opening={"log_start_offset": 7})
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert "00000000000000000000.log" not in storage.names(HOME)
    assert log.append(batch([b"v"]), 0, NOW_MS).base_offset == 7


def test_epochs_beyond_what_is_left_are_forgotten():
    storage = disk_with(
        {
            FIRST: stored(batch([b"a"])),
            "leader-epoch-checkpoint": b"0\n3\n0 0\n4 1\n9 30\n",
        }
    )
    log = open_log(storage)
    assert log.epochs.entries() == [(0, 0)]
    assert log.epoch_end_offset(4) == (-1, -1)


def test_leftovers_of_interrupted_work_go():
    storage = disk_with(
        {
            "00000000000000000000.log": stored(batch([b"a"])),
            "00000000000000000000.log.cleaned": b"x",
            "00000000000000000009.log.deleted": b"x",
            "00000000000000000009.index": b"",
            "00000000000000000009.timeindex": b"",
            "leader-epoch-checkpoint.tmp": b"x",
            "00000000000000000005.timeindex.swap": b"x",
        }
    )
    log = open_log(storage)
    assert offsets(log) == [0]
    assert storage.names(HOME) == ["00000000000000000000.log"]


def test_a_committed_compaction_is_finished():
    storage = disk_with(
        {
            "00000000000000000000.log": stored(batch([b"a"]), batch([b"b"])),
            "00000000000000000002.log": stored(batch([b"c"]), base=2),
            "00000000000000000003.log": stored(batch([b"d"]), base=3),
            "00000000000000000000.log.swap": stored(batch([b"c"]), base=2),
        }
    )
    log = open_log(storage)
    assert [record[3] for record in decoded(everything(log))] == [b"c", b"d"]
    assert "00000000000000000002.log" not in storage.names(HOME)
    log.check()


def test_kafkas_preallocated_indexes_are_taken_for_what_they_are():
    """Kafka pads the active segment's indexes with zeros until an orderly stop."""
    whole = stored(*[batch([b"%d" % n] * 2) for n in range(10)])
    storage = disk_with(
        {
            "00000000000000000000.log": whole,
            "00000000000000000000.index": bytes(8192),
            "00000000000000000000.timeindex": bytes(8184),
        }
    )
    log = open_log(storage, **CONFIG)
    assert offsets(log) == list(range(20))
    log.check()


def test_a_new_log_begins_empty():
    storage = MemoryStorage()
    log = open_log(storage)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert storage.names(HOME) == ["00000000000000000000.log"]
    assert reading.read(log, 0, 100, 0) is None
    assert found_at(log, 0) is None
    assert found_newest(log) is None
    log.check()


# ---- reports to the operator ----


def losses(files, **opening):
    told = []
    open_log(disk_with(files), opening={**opening, "report": told.append})
    return told


def test_every_byte_that_is_cut_off_is_reported_with_the_reason():
    whole = stored(batch([b"a"]), batch([b"b"]))
    files = {
        "00000000000000000000.log": whole[:-1],
        "00000000000000000002.log": stored(batch([b"c"]), base=2),
    }
    one, two = sorted(losses(files), key=lambda each: each.path)
    assert one.path == f"{HOME}/00000000000000000000.log"
    assert one.size == len(whole[:-1]) - len(whole) // 2
    assert one.reason == "it ends within a batch"
    assert two.path == f"{HOME}/00000000000000000002.log"
    assert two.size == len(whole) // 2
    assert "which was cut" in two.reason


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda whole: whole[:-1] + b"!", "CRC"),
        (lambda whole: whole + bytes(100), "magic 0"),
        (lambda whole: whole + stored(batch([b"b"]), base=0), "stands where those"),
    ],
    ids=["bit", "zeros", "offset"],
)
def test_the_reason_is_reported(damage, reason):
    (told,) = losses({"00000000000000000000.log": damage(stored(batch([b"a"])))})
    assert reason in told.reason


def test_segments_before_the_log_start_are_reported():
    files = {"00000000000000000000.log": stored(batch([b"a"]))}
    (told,) = losses(files, log_start_offset=7)
    assert "before its start, 7" in told.reason


def test_a_sound_log_has_nothing_to_tell():
    assert losses({"00000000000000000000.log": stored(batch([b"a"]))}) == []
