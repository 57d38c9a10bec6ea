"""Idempotent producers: retries, gaps, fenced epochs, and state after a restart."""

import errno
import random
import struct
import sys

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from broker.disk.memory import Faults
from broker.disk.storage import join, read_whole
from broker.log import flushing, trimming
from broker.log import log_reading as reading
from broker.log.producers import PRODUCERS_PER_STEP, BatchMetadata, Producers
from broker.log.steps import run
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import parse_header
from tests.broker.log.witness import HOME, NOW_MS, batch, open_log, truncate_to


def send(log, sequence, count=1, *, epoch=0, producer_id=7):
    values = [b"%d" % sequence] * count
    sent = batch(values, producer_id=producer_id, epoch=epoch, sequence=sequence)
    return log.append(sent, 0, NOW_MS)


def refused(log, *arguments, **options):
    end = log.log_end_offset
    with pytest.raises(KafkaError) as error:
        send(log, *arguments, **options)
    assert log.log_end_offset == end
    return error.value.code


def test_each_of_the_last_five_batches_may_be_repeated():
    log = open_log()
    first = [send(log, 2 * number, 2)[:2] for number in range(7)]
    for number in range(2, 7):
        assert send(log, 2 * number, 2)[:2] == first[number]
    assert log.log_end_offset == 14
    # The sixth batch from the end is no longer known.
    assert refused(log, 2, 2) is ErrorCode.out_of_order_sequence_number


def test_a_retry_must_be_the_same_batch():
    log = open_log()
    send(log, 0, 2)
    assert refused(log, 0, 1) is ErrorCode.out_of_order_sequence_number
    assert refused(log, 1, 1) is ErrorCode.out_of_order_sequence_number


def test_a_gap_is_out_of_order():
    log = open_log()
    send(log, 0)
    assert refused(log, 2) is ErrorCode.out_of_order_sequence_number
    assert send(log, 1).base_offset == 1


def test_an_unknown_producer_may_begin_anywhere():
    log = open_log()
    send(log, 41)
    send(log, 42)
    assert log.log_end_offset == 2


def test_a_new_epoch_begins_at_zero_and_fences_the_old():
    log = open_log()
    send(log, 0)
    send(log, 1)
    assert refused(log, 2, epoch=1) is ErrorCode.out_of_order_sequence_number
    assert send(log, 0, epoch=1).base_offset == 2
    assert refused(log, 2, epoch=0) is ErrorCode.invalid_producer_epoch
    # Batches of the old epoch are not accepted as retries either.
    assert refused(log, 1, epoch=0) is ErrorCode.invalid_producer_epoch
    assert send(log, 0, epoch=1).base_offset == 2


def test_producers_do_not_disturb_each_other():
    log = open_log()
    for number in range(3):
        send(log, number, producer_id=1)
        send(log, 10 + number, producer_id=2)
    assert send(log, 2, producer_id=1).base_offset == 4
    assert send(log, 12, producer_id=2).base_offset == 5


def test_sequence_numbers_wrap():
    log = open_log()
    send(log, 2**31 - 2, 3)
    assert send(log, 2**31 - 2, 3)[:2] == (0, 2)
    assert refused(log, 2) is ErrorCode.out_of_order_sequence_number
    assert send(log, 1).base_offset == 3


def test_the_answer_to_a_retry_has_the_first_append_time():
    log = open_log(message_timestamp_type="LogAppendTime")
    send(log, 0)
    again = batch([b"0"], producer_id=7, epoch=0, sequence=0)
    assert log.append(again, 0, NOW_MS + 99).log_append_time_ms == NOW_MS


@pytest.mark.parametrize("how", ["clean", "killed", "no snapshot", "bad snapshot"])
def test_all_five_batches_are_known_after_a_restart(how):
    log = open_log(segment_bytes=200)
    first = [send(log, number)[:2] for number in range(9)]
    send(log, 0, producer_id=0)
    if how == "clean":
        flushing.settle(log)
    storage = log.storage.disk.after_kill()
    names = [name for name in storage.names(HOME) if name.endswith(".snapshot")]
    assert names
    for name in names:
        if how == "no snapshot":
            storage.remove(join(HOME, name))
        elif how == "bad snapshot":
            storage.open(join(HOME, name)).write(3, (b"\xff",), 1)
    again = open_log(storage, opening={"clean": how == "clean"}, segment_bytes=200)
    for number in range(4, 9):
        assert send(again, number)[:2] == first[number]
    assert refused(again, 10) is ErrorCode.out_of_order_sequence_number
    assert send(again, 9).base_offset == 10
    assert refused(again, 2, producer_id=0) is ErrorCode.out_of_order_sequence_number


def test_a_truncation_takes_back_what_producers_sent():
    log = open_log(segment_bytes=200)
    for number in range(9):
        send(log, number)
    truncate_to(log, 6, NOW_MS)
    assert refused(log, 8) is ErrorCode.out_of_order_sequence_number
    assert send(log, 5).base_offset == 5
    assert send(log, 6).base_offset == 6


def test_a_snapshot_of_what_was_truncated_is_not_believed_later():
    log = open_log(segment_bytes=200)
    for number in range(6):
        send(log, number)
    assert "00000000000000000004.snapshot" in log.storage.disk.names(HOME)
    truncate_to(log, 1, NOW_MS)
    send(log, 0, 9, producer_id=8)
    again = open_log(log.storage.disk.after_kill(), segment_bytes=200)
    assert send(again, 0, 9, producer_id=8).base_offset == 1
    assert refused(again, 4) is ErrorCode.out_of_order_sequence_number
    assert send(again, 1).base_offset == 10


def truncate_fully(log, offset, now_ms):
    trimming.truncate_fully(log, offset, now_ms, Producers())


@pytest.mark.parametrize("cut", [truncate_fully, truncate_to])
def test_a_log_that_begins_anew_knows_no_producer(cut):
    """As in Kafka's ``truncateFullyAndStartAt``: the producer state is cleared."""
    log = open_log(segment_bytes=200)
    for number in range(6):
        send(log, number)
    trimming.delete_records_before(log, 4)
    cut(log, 100 if cut is truncate_fully else 3, NOW_MS)
    assert len(log.producers) == 0
    log = open_log(log.storage.disk.after_kill(), segment_bytes=200)
    assert len(log.producers) == 0
    send(log, 77)


def test_a_follower_learns_from_its_leaders_batches():
    leader, follower = open_log(), open_log()
    for number in range(3):
        send(leader, number)
    content = reading.read(leader, 0, 1 << 20, 3).read()
    follower.append_as_follower(content, NOW_MS)
    assert send(follower, 1).base_offset == 1
    assert refused(follower, 4) is ErrorCode.out_of_order_sequence_number


def test_producers_are_forgotten_when_they_are_silent_for_long():
    log = open_log()
    send(log, 0)
    run(log.producers.expire(NOW_MS))
    assert refused(log, 2) is ErrorCode.out_of_order_sequence_number
    run(log.producers.expire(NOW_MS + 1))
    assert len(log.producers) == 0
    send(log, 2)


# ---- many producers ----

MANY = 3 * PRODUCERS_PER_STEP


def crowded(**settings):
    """Return a log of two segments; many producers were known at the roll."""
    log = open_log(**settings)
    for number in range(MANY):
        send(log, 0, producer_id=number)
    log.roll(NOW_MS)
    return log


def snapshots(storage):
    return [name for name in storage.names(HOME) if name.endswith(".snapshot")]


def known(log):
    """Return the log's state of each producer."""
    return {
        each: (state.epoch, *state.batches)
        for each in range(2 * MANY)
        if (state := log.producers._known(each)) is not None
    }


def test_a_roll_puts_off_the_snapshot_of_many_which_is_that_of_the_roll():
    log = crowded()
    assert snapshots(log.storage.disk) == []
    rolled_at, then = log.log_end_offset, known(log)
    # Producers send between the steps, also one that a step is working on.
    send(log, 1, producer_id=7)
    send(log, 0, producer_id=MANY)
    for number, call in enumerate(flushing.snapshot_in_steps(log), 1):
        send(log, number, producer_id=MANY)
        if number == 2:
            send(log, 0, epoch=1, producer_id=8)
        if call is not None:
            call()
    assert snapshots(log.storage.disk) == [f"{rolled_at:020d}.snapshot"]
    written = Producers()
    path = join(HOME, f"{rolled_at:020d}.snapshot")
    assert run(written.decode(read_whole(log.storage, path)))
    assert {
        each: (state.epoch, *state.batches) for each, state in written._states.items()
    } == then
    now = known(log)
    assert now != then
    flushing.flush(log)
    again = open_log(log.storage.disk.after_power_loss(random.Random(1)))
    assert known(again) == now == known(log)
    # The next snapshot contains the state of all producers.
    log.roll(NOW_MS)
    assert log.producers.frozen is not None
    run(flushing.snapshot_in_steps(log))
    assert len(snapshots(log.storage.disk)) == 2
    assert log.producers.frozen is None
    assert run(flushing.snapshot_in_steps(log)) is None


def test_without_the_snapshot_that_was_put_off_a_recovery_knows_the_same():
    log = crowded()
    send(log, 1, producer_id=7)
    assert known(open_log(log.storage.disk.after_kill())) == known(log)
    flushing.settle(log)
    assert known(open_log(log.storage.disk, opening={"clean": True})) == known(log)


def test_producers_are_unknown_whose_batches_went_before_the_snapshot_was_written():
    """Otherwise an older snapshot would make their next batch out of order."""
    log = crowded()
    send(log, 1, producer_id=7)
    log.roll(NOW_MS)
    trimming.delete_records_before(log, log.log_end_offset)
    again = open_log(
        log.storage.disk.after_kill(),
        opening={"log_start_offset": log.log_start_offset},
    )
    assert known(again) == {}
    send(again, 2, producer_id=7)


@pytest.mark.parametrize("steps", range(5))
def test_deferred_work_is_dropped_when_the_log_is_cut(steps):
    log = crowded()
    send(log, 1, producer_id=7)
    work = flushing.snapshot_in_steps(log)
    for _ in range(steps):
        step = next(work, None)
    truncate_to(log, 10, NOW_MS)
    if steps == 4:
        step()
    run(work)
    assert log.producers.frozen is None
    assert snapshots(log.storage.disk) == []
    assert sorted(known(log)) == list(range(10))


def calls_per_step(work):
    """Run work in steps; return the most calls in one step, and the result."""
    most = calls = 0

    def note(frame, event, arg):
        nonlocal calls
        calls += event in ("call", "c_call")

    while True:
        calls = 0
        sys.setprofile(note)
        try:
            next(work)
        except StopIteration as done:
            return max(most, calls), done.value
        finally:
            sys.setprofile(None)
            most = max(most, calls)


@pytest.mark.parametrize("has_snapshot", [False, True])
def test_a_cut_looks_at_a_few_producers_at_a_time(has_snapshot):
    log = open_log()
    for number in range(20 * PRODUCERS_PER_STEP):
        send(log, 0, producer_id=number)
    log.roll(NOW_MS)
    if has_snapshot:
        run(flushing.snapshot_in_steps(log))
    send(log, 1, 2, producer_id=7)
    end = log.log_end_offset - 1
    most, producers = calls_per_step(trimming.producers_before(log, end))
    assert most < 20 * PRODUCERS_PER_STEP
    before = known(log)
    assert trimming.truncate_to(log, end, NOW_MS, producers) == end - 1
    after = {each: state for each, state in before.items() if each != 7}
    assert known(log) == {**after, 7: before[7][:-1]}
    most, _ = calls_per_step(producers.emptied())
    assert most < 3 * PRODUCERS_PER_STEP
    assert len(producers) == 0


@pytest.mark.parametrize("step", range(6))
def test_a_cut_looks_again_when_segments_go_meanwhile(step):
    log = crowded()
    send(log, 1, producer_id=7)
    send(log, 1, producer_id=8)
    end = log.log_end_offset - 1
    work = trimming.producers_before(log, end)
    for _ in range(step):
        next(work)
    trimming.delete_records_before(log, end - 1)
    producers = run(work)
    trimming.truncate_to(log, end, NOW_MS, producers)
    run(trimming.cut_in_steps(log))
    opening = {"log_start_offset": log.log_start_offset}
    again = open_log(log.storage.disk.after_kill(), opening=opening)
    assert known(again) == known(log)
    assert sorted(known(log)) == [7]


def test_producers_that_are_many_are_forgotten_a_few_at_a_time():
    log = crowded()
    # Producers do not expire while their snapshot is being written.
    run(log.producers.expire(NOW_MS + 1))
    assert len(log.producers) == MANY
    run(flushing.snapshot_in_steps(log))
    steps = log.producers.expire(NOW_MS + 1)
    next(steps)
    assert len(log.producers) == MANY - PRODUCERS_PER_STEP
    send(log, 1, producer_id=MANY - 1)
    send(log, 0, producer_id=MANY)
    run(steps)
    assert sorted(known(log)) == [MANY]


def test_a_full_disk_puts_a_snapshot_off_once_more():
    log = crowded()
    frozen = log.producers.frozen
    log.storage.disk.faults = Faults(1, error=errno.ENOSPC)
    with pytest.raises(KafkaError):
        run(flushing.snapshot_in_steps(log))
    assert log.producers.frozen is frozen
    run(flushing.snapshot_in_steps(log))
    assert len(snapshots(log.storage.disk)) == 1


# ---- snapshot files ----


def test_a_snapshot_is_kafkas_bytes():
    log = open_log(segment_bytes=100)
    send(log, 5, 3)
    log.roll(NOW_MS)
    found = read_whole(log.storage.disk, join(HOME, "00000000000000000003.snapshot"))
    entry = struct.pack(">qhiqiqiq", 7, 0, 7, 2, 2, NOW_MS, -1, -1)
    body = struct.pack(">i", 1) + entry
    assert found == struct.pack(">hI", 1, crc32c(body)) + body


def test_kafkas_snapshot_has_one_batch_per_producer():
    """Kafka's snapshot contains the last batch of a producer only."""
    entry = struct.pack(">qhiqiqiq", 7, 3, 9, 19, 4, NOW_MS, -1, -1)
    idle = struct.pack(">qhiqiqiq", 8, 1, -1, -1, 0, NOW_MS, -1, -1)
    body = struct.pack(">i", 2) + entry + idle
    producers = Producers()
    assert run(producers.decode(struct.pack(">hI", 1, crc32c(body)) + body))
    assert producers.check(7, 3, 5, 9) == BatchMetadata(5, 9, 15, 19, NOW_MS)
    assert producers.check(7, 3, 10, 10) is None
    assert producers.check(8, 1, 0, 77) is None
    with pytest.raises(KafkaError):
        producers.check(8, 1, 77, 77)
    with pytest.raises(KafkaError):
        producers.check(8, 0, 0, 0)


def test_a_producer_without_batches_has_a_delta_of_zero():
    """As in Kafka's ``ProducerStateEntry.lastOffsetDelta``."""
    idle = struct.pack(">qhiqiqiq", 8, 1, -1, -1, 0, -1, -1, -1)
    body = struct.pack(">i", 1) + idle
    snapshot = struct.pack(">hI", 1, crc32c(body)) + body
    producers = Producers()
    assert run(producers.decode(snapshot))
    assert producers.encode() == snapshot


@pytest.mark.parametrize("count", range(1, 8))
def test_the_last_offset_of_a_producer_is_that_of_its_last_batch(count):
    producers = Producers()
    for number in range(count):
        at = 10 * number
        producers.append(7, 0, BatchMetadata(at, at + 9, at, at + 9, NOW_MS))
    producers.append(8, 0, BatchMetadata(0, 0, 3, 3, NOW_MS))
    assert run(producers.last_offsets()) == {10 * count - 1, 3}


@given(
    batches=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 9)), max_size=30
    )
)
def test_a_snapshot_restores_what_it_was_taken_of(batches):
    producers, offset = Producers(), 0
    for producer_id, epoch, delta in batches:
        metadata = BatchMetadata(offset, offset + delta, offset, offset + delta, offset)
        producers.append(producer_id, epoch, metadata)
        offset += delta + 1
    again = Producers()
    assert run(again.decode(producers.encode()))
    assert again.encode() == producers.encode()
    again.check_invariants()


@given(st.binary(max_size=120))
def test_a_damaged_snapshot_is_not_taken(content):
    assert not run(Producers().decode(content))


def test_every_flipped_bit_in_a_snapshot_is_noticed():
    producers = Producers()
    producers.append(1, 0, BatchMetadata(0, 0, 0, 0, 0))
    content = producers.encode()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        assert not run(Producers().decode(bytes(damaged)))


def test_control_batches_advance_the_epoch_only():
    """Transaction markers in a log that Kafka wrote."""
    producers = Producers()
    marker = parse_header(batch([b"marker"], producer_id=7, epoch=2, sequence=0))
    producers.replay(marker._replace(base_sequence=-1, attributes=0x30))
    assert producers.check(7, 2, 0, 55) is None
    with pytest.raises(KafkaError) as error:
        producers.check(7, 2, 55, 55)
    assert error.value.code is ErrorCode.out_of_order_sequence_number
    with pytest.raises(KafkaError) as error:
        producers.check(7, 1, 0, 0)
    assert error.value.code is ErrorCode.invalid_producer_epoch
