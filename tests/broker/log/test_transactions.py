"""Transactions in a log, compared with a model of the outcome of each.

A follower's log and a leader's have the same content, state and limits.

A ``read_committed`` consumer is simulated with the algorithm of Kafka's consumer
(``CompletedFetch``): the consumer gets batches up to the last stable offset and the
list of aborted transactions, and follows the markers.
"""

import random
import struct

import pytest
from crc32c import crc32c

from broker.log import log_reading as reading
from broker.log import trimming
from broker.log.flushing import settle
from broker.log.producers import Producers
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.steps import run
from broker.log.transactions import UNVERIFIED, Marker, marker_batch, marker_of
from broker.log.upkeep import cleaner
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.records.batch import parse_header
from broker.protocol.records.batch_records import new_batch
from tests.broker.log.witness import (
    NOW_MS,
    altered,
    batch,
    decoded,
    disk_with,
    everything,
    open_log,
    stored,
    truncate_to,
)
from tests.seeds import seeds

TRANSACTIONAL, CONTROL = 0x10, 0x20
COMPACT = frozenset({"compact"})


def sent(key, value, producer_id, *, sequence=0, epoch=0):
    made = batch(
        [value], keys=[key], producer_id=producer_id, epoch=epoch, sequence=sequence
    )
    return altered(made, {21: ("h", TRANSACTIONAL)})


def marker(producer_id, *, commit, epoch=0, coordinator_epoch=3, time_ms=NOW_MS):
    made = batch(
        [struct.pack(">hi", 0, coordinator_epoch)],
        keys=[struct.pack(">hh", 0, int(commit))],
        producer_id=producer_id,
        epoch=epoch,
        timestamps=[time_ms],
    )
    return altered(made, {21: ("h", TRANSACTIONAL | CONTROL)})


def verified(log, header):
    """Return the verification guard of a batch that the coordinator has confirmed."""
    return log.producers.begin_verification(
        header.producer_id, header.producer_epoch, header.base_sequence, NOW_MS
    )


def put(log, *batches):
    for each in batches:
        base = log.log_end_offset
        log.append_as_follower(stored(each, base=base), NOW_MS)


def committed(log, offset, end):
    """Return the (offset, key, value) that a ``read_committed`` consumer gets."""
    found = []
    while offset < end:
        piece = reading.read(log, offset, 600, end)
        if piece is None:
            break
        aborted = reading.aborted_in(log, offset, piece, end)
        offset = _consumed(piece.read(), aborted, offset, found)
    return found


def _consumed(content, aborted, offset, found):
    waiting = sorted(aborted, key=lambda each: each.first_offset)
    taken_back, position = set(), 0
    while len(content) - position >= 61:
        header = parse_header(content, position)
        if len(content) - position < header.size:
            break
        whole = content[position : position + header.size]
        position += header.size
        while waiting and waiting[0].first_offset <= header.last_offset:
            taken_back.add(waiting.pop(0).producer_id)
        if header.attributes & CONTROL:
            ((_, _, key, _),) = decoded(whole)
            if struct.unpack(">hh", key)[1] == 0:
                taken_back.discard(header.producer_id)
        elif header.record_count and not (
            header.attributes & TRANSACTIONAL and header.producer_id in taken_back
        ):
            found += [
                (at, key, value) for at, _, key, value in decoded(whole) if at >= offset
            ]
        offset = header.last_offset + 1
    return offset


class Model:
    """List of (offset, key, value, transaction or None) of each record."""

    def __init__(self):
        self.records = []
        self.transactions = []
        self.open = {}

    def cut(self, end):
        self.records = [each for each in self.records if each[0] < end]
        self.transactions = [each for each in self.transactions if each["first"] < end]
        self.open = {}
        for each in self.transactions:
            if each["last"] is not None and each["last"] >= end:
                each["last"] = each["commit"] = None
            if each["last"] is None:
                self.open[each["producer"]] = each

    def write(self, offset, key, value, producer):
        if producer not in self.open:
            self.open[producer] = {
                "producer": producer,
                "first": offset,
                "last": None,
                "commit": None,
            }
            self.transactions.append(self.open[producer])
        self.records.append((offset, key, value, self.open[producer]))

    def stable(self, high_watermark):
        return min(
            [high_watermark]
            + [
                each["first"]
                for each in self.transactions
                if each["last"] is None or each["last"] >= high_watermark
            ]
        )

    def committed(self, start, end):
        return [
            each[:3]
            for each in self.records
            if start <= each[0] < end and (each[3] is None or each[3]["commit"])
        ]


class History:
    """A random history of one log, as leader or follower, with its model."""

    def __init__(self, seed, *, led=False):
        self.rng = random.Random(seed)
        self._led = led
        self.config = {
            "segment_bytes": self.rng.choice([400, 1500, 10_000]),
            "index_interval_bytes": self.rng.choice([0, 100, 4096]),
        }
        self.log, self.model = open_log(**self.config), Model()
        self._sequences = {}
        self._stable = 0
        self._number = 0

    def step(self):
        kind = self.rng.choices(
            [
                self.plain,
                self.write,
                self.end,
                self.stop,
                self.kill,
                self.roll,
                self.cut,
            ],
            [15, 45, 25, 5, 4, 2, 0 if self._led else 4],
        )[0]
        self._number += 1
        kind(self.log.log_end_offset, self.rng.randrange(4))
        self._stable = self.model.stable(self.log.log_end_offset)

    def _put(self, each):
        header = parse_header(each)
        if not self._led:
            put(self.log, each)
        elif header.attributes & CONTROL:
            self.log.append_of_coordinator(each, 0, NOW_MS)
        else:
            guard = None
            if header.attributes & TRANSACTIONAL:
                guard = verified(self.log, header)
            self.log.append(each, 0, NOW_MS, guard=guard)

    def plain(self, offset, producer):
        key, value = b"k%d" % self.rng.randrange(4), b"plain %d" % self._number
        self._put(batch([value], keys=[key]))
        self.model.records.append((offset, key, value, None))

    def write(self, offset, producer):
        key, value = b"k%d" % self.rng.randrange(4), b"value %d" % self._number
        sequence = self._sequences[producer] = self._sequences.get(producer, -1) + 1
        self._put(sent(key, value, producer, sequence=sequence))
        self.model.write(offset, key, value, producer)

    def end(self, offset, producer):
        commit = self.rng.random() < 0.5
        self._put(marker(producer, commit=commit))
        ended = self.model.open.pop(producer, None)
        if ended is not None:
            ended.update(last=offset, commit=commit)

    def stop(self, offset, producer):
        settle(self.log)
        left = self.log.storage.disk.after_power_loss(self.rng)
        self.log = open_log(left, opening={"clean": True}, **self.config)

    def kill(self, offset, producer):
        left = self.log.storage.disk.after_kill()
        opening = {"recovery_point": self.log.recovery_point}
        self.log = open_log(left, opening=opening, **self.config)

    def roll(self, offset, producer):
        self.log.roll(NOW_MS)

    def cut(self, offset, producer):
        if offset > self._stable:
            at = self.rng.randrange(self._stable, offset)
            truncate_to(self.log, at, NOW_MS)
            self.model.cut(self.log.log_end_offset)


@pytest.mark.parametrize("seed", seeds(20, 60))
@pytest.mark.parametrize("led", [False, True], ids=["followed", "led"])
def test_committed_readers_get_what_was_committed_and_nothing_else(led, seed):
    shown, history = 0, History(seed, led=led)
    for _ in range(120):
        history.step()
        rng, log, model = history.rng, history.log, history.model
        shown = min(shown, log.log_end_offset)
        shown = rng.randint(shown, log.log_end_offset)
        end = log.log_end_offset
        assert log.stable_below(end) == model.stable(end), seed
        assert log.stable_below(shown) >= model.stable(shown) or not shown, seed
        stable = log.stable_below(shown)
        start = rng.randint(0, stable)
        assert committed(log, start, stable) == model.committed(start, stable), seed
    log.check()


@pytest.mark.parametrize("seed", seeds(16, 40))
def test_compaction_counts_committed_records_only(seed):
    history = History(seed, led=seed % 2 == 1)
    for _ in range(80):
        history.step()
    log, model = history.log, history.model
    end = log.log_end_offset
    stable = log.stable_below(end)
    newest = {}
    for offset, key, value in model.committed(0, stable):
        newest[key] = (offset, value)
    config = log.config
    log.configure(
        type(config)(
            segment_bytes=config.segment_bytes,
            index_interval_bytes=config.index_interval_bytes,
            cleanup_policy=COMPACT,
        )
    )
    log.roll(NOW_MS)
    keys_max = history.rng.choice([1, 2, 3, 1000])
    run(cleaner.compaction(log, NOW_MS, stable, keys_max))
    log.check()
    killed = open_log(log.storage.disk.after_kill(), cleanup_policy=COMPACT)
    settle(log)
    left = log.storage.disk.after_power_loss(history.rng)
    stopped = open_log(left, opening={"clean": True}, cleanup_policy=COMPACT)
    for again in (log, killed, stopped):
        got = {}
        for offset, key, value in committed(again, 0, stable):
            got[key] = (offset, value)
        assert got == newest, seed
        assert again.stable_below(end) == stable


def test_a_transaction_that_was_aborted_does_not_replace_a_committed_record():
    """Finding H7 of the review: compaction kept the aborted value of the key."""
    log = open_log(segment_bytes=300, cleanup_policy=COMPACT)
    put(log, batch([b"committed"], keys=[b"K"]))
    put(log, sent(b"K", b"ABORTED", 7), marker(7, commit=False))
    put(log, *(batch([b"x"], keys=[b"other"]) for _ in range(4)))
    log.roll(NOW_MS)
    run(cleaner.compaction(log, NOW_MS, log.stable_below(log.log_end_offset)))
    found = {key: value for _, _, key, value in decoded(everything(log))}
    assert found[b"K"] == b"committed"


def test_lists_of_aborted_transactions_are_kafkas_bytes():
    """Hand-written from Kafka's ``AbortedTxn``: version, id, first, last, stable."""
    log = open_log()
    put(log, sent(b"k", b"a", 7), sent(b"k", b"b", 8), marker(7, commit=False))
    put(log, marker(8, commit=False))
    settle(log)
    path = f"{log.directory}/00000000000000000000.txnindex"
    file = log.storage.open(path)
    assert file.read(0, 1000) == (
        struct.pack(">hqqqq", 0, 7, 0, 2, 1) + struct.pack(">hqqqq", 0, 8, 1, 3, 4)
    )


@pytest.mark.parametrize("content", [b"x", bytes(68), b"\0\1" + bytes(32)])
def test_a_list_that_is_not_sane_is_made_again(content):
    log = open_log()
    put(log, sent(b"k", b"a", 7), marker(7, commit=False), batch([b"x"]))
    settle(log)
    disk = log.storage.disk
    file = disk.open(f"{log.directory}/00000000000000000000.txnindex")
    file.truncate(0)
    file.write(0, (content,), len(content))
    again = open_log(disk, opening={"clean": True})
    assert again.segments.active.aborted.entries == [AbortedTransaction(7, 0, 1, 2)]


def test_a_marker_is_not_stable_before_it_is_replicated():
    log = open_log()
    put(log, batch([b"p"]), sent(b"k", b"a", 7), batch([b"q"]), marker(7, commit=True))
    assert [log.stable_below(shown) for shown in (0, 1, 2, 3)] == [0, 1, 1, 1]
    assert log.stable_below(4) == 4


def test_a_transaction_of_a_fenced_producer_ends_by_the_next_epochs_marker():
    log = open_log()
    put(log, sent(b"k", b"a", 7), batch([b"q"]))
    assert log.stable_below(2) == 0
    put(log, marker(7, commit=False, epoch=1))
    assert log.stable_below(3) == 3
    assert log.segments.active.aborted.entries == [AbortedTransaction(7, 0, 2, 3)]


@pytest.mark.parametrize(
    "key", [b"", b"\0\0", struct.pack(">hh", 0, 5), None], ids=repr
)
def test_other_control_records_end_nothing(key):
    log = open_log()
    other = batch([b"\0\0\0\0\0\1"], keys=[key], producer_id=7, epoch=0)
    put(log, sent(b"k", b"a", 7), altered(other, {21: ("h", TRANSACTIONAL | CONTROL)}))
    assert log.stable_below(2) == 0


def test_producers_known_by_a_marker_only_expire_and_open_transactions_do_not():
    log = open_log(producer_id_expiration_ms=1000)
    put(log, marker(7, commit=True), sent(b"k", b"a", 8))
    run(log.producers.expire(NOW_MS))
    assert len(log.producers) == 2
    run(log.producers.expire(NOW_MS + 1))
    assert log.stable_below(2) == 1
    assert len(log.producers) == 1
    put(log, marker(8, commit=True))
    run(log.producers.expire(NOW_MS + 1))
    assert len(log.producers) == 0


def test_the_start_of_the_log_is_stable_though_a_transaction_began_before_it():
    log = open_log()
    put(log, sent(b"k", b"a", 7), batch([b"q"]), batch([b"r"]))
    trimming.delete_records_before(log, 2)
    assert log.stable_below(3) == 2


def test_kafkas_snapshot_has_the_open_transaction():
    """In Kafka's snapshot an entry has the first offset of its open transaction."""
    entry = struct.pack(">qhiqiqiq", 7, 0, 0, 0, 0, NOW_MS, 3, 0)
    body = struct.pack(">i", 1) + entry
    snapshot = struct.pack(">hI", 1, crc32c(body)) + body
    files = {
        "00000000000000000000.log": stored(sent(b"k", b"a", 7)),
        "00000000000000000001.log": stored(batch([b"q"]), base=1),
        "00000000000000000001.snapshot": snapshot,
    }
    log = open_log(disk_with(files), opening={"recovery_point": 1})
    assert log.stable_below(2) == 0
    put(log, marker(7, commit=False))
    assert log.segments.active.aborted.entries == [AbortedTransaction(7, 0, 2, 3)]


# ---- checks by a leader ----


def lead(log, sending, *, guard="verified"):
    """Append a producer's batch as leader, with a verified guard by default."""
    if guard == "verified":
        guard = verified(log, parse_header(sending))
    return log.append(sending, 0, NOW_MS, guard=guard)


def end(log, producer_id, *, epoch=0, coordinator_epoch=3, commit=True):
    found = Marker(not commit, coordinator_epoch)
    made = marker_batch(producer_id, epoch, found, NOW_MS)
    return log.append_of_coordinator(made, 0, NOW_MS)


def refusal(call, *arguments, **options):
    with pytest.raises(KafkaError) as refused:
        call(*arguments, **options)
    return refused.value.code


def test_a_marker_is_kafkas_bytes():
    """Hand-written from ``EndTransactionMarker``: key version, type, value, epoch."""
    made = marker_batch(7, 2, Marker(False, 9), NOW_MS)
    header = parse_header(made)
    assert header.attributes == TRANSACTIONAL | CONTROL
    assert (header.producer_id, header.producer_epoch) == (7, 2)
    assert (header.base_sequence, header.record_count) == (-1, 1)
    assert decoded(made) == [(0, NOW_MS, b"\0\0\0\1", b"\0\0\0\0\0\x09")]
    assert marker_of(header, made) == Marker(False, 9)


def test_a_transaction_begins_with_a_guard_only():
    log = open_log()
    first = sent(b"k", b"a", 7)
    assert refusal(lead, log, first, guard=None) is ErrorCode.invalid_txn_state
    other = verified(open_log(), parse_header(first))
    assert refusal(lead, log, first, guard=other) is ErrorCode.invalid_txn_state
    assert log.log_end_offset == 0
    lead(log, first)
    # In the open transaction, neither further batches nor retries need a guard.
    assert verified(log, parse_header(first)) is None
    lead(log, sent(b"k", b"b", 7, sequence=1), guard=None)
    assert lead(log, first, guard=None).base_offset == 0
    end(log, 7)
    third = sent(b"k", b"c", 7, sequence=2)
    assert refusal(lead, log, third, guard=None) is ErrorCode.invalid_txn_state
    lead(log, third, guard=UNVERIFIED)
    assert log.stable_below(log.log_end_offset) == 3


def test_a_marker_makes_the_guards_of_its_producer_invalid():
    """The coordinator aborted after verification; the batch would never end."""
    log = open_log()
    late = sent(b"k", b"a", 7)
    guard = verified(log, parse_header(late))
    end(log, 7, commit=False)
    assert refusal(lead, log, late, guard=guard) is ErrorCode.invalid_txn_state
    assert log.stable_below(log.log_end_offset) == 1


def test_a_batch_behind_one_that_was_not_verified_is_out_of_order():
    log = open_log()
    verified(log, parse_header(sent(b"k", b"a", 7)))
    second = sent(b"k", b"b", 7, sequence=1)
    assert refusal(lead, log, second) is ErrorCode.out_of_order_sequence_number
    lead(log, sent(b"k", b"a", 7))
    lead(log, second)


def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused():
    log = open_log()
    lead(log, sent(b"k", b"a", 7))
    plain = batch([b"p"], producer_id=7, epoch=0, sequence=1)
    assert refusal(lead, log, plain, guard=None) is ErrorCode.invalid_txn_state
    end(log, 7)
    lead(log, plain, guard=None)


def test_a_marker_fences_older_epochs_and_older_coordinators():
    log = open_log()
    lead(log, sent(b"k", b"a", 7, epoch=1))
    assert refusal(end, log, 7, epoch=0) is ErrorCode.invalid_producer_epoch
    end(log, 7, epoch=2, commit=False)
    zombie = sent(b"k", b"b", 7, epoch=1, sequence=1)
    assert refusal(lead, log, zombie) is ErrorCode.invalid_producer_epoch
    fenced = refusal(end, log, 7, epoch=2, coordinator_epoch=2)
    assert fenced is ErrorCode.transaction_coordinator_fenced
    # A repeated marker ends no transaction, but is written.
    end(log, 7, epoch=2, coordinator_epoch=3, commit=False)
    assert log.segments.active.aborted.entries == [AbortedTransaction(7, 0, 1, 2)]
    assert log.log_end_offset == 3


def test_a_producer_known_by_a_marker_begins_at_zero():
    log = open_log()
    end(log, 7)
    later = sent(b"k", b"a", 7, sequence=5)
    assert refusal(lead, log, later) is ErrorCode.out_of_order_sequence_number
    log.producers.exchange(Producers())
    lead(log, later)


def test_offsets_of_a_transaction_have_no_numbers_and_hold_the_stable_offset():
    log = open_log()
    made = new_batch(
        [(NOW_MS, b"k", b"v")],
        producer_id=7,
        producer_epoch=0,
        attributes=TRANSACTIONAL,
    )
    append = log.append_of_coordinator
    assert refusal(append, made, 0, NOW_MS) is ErrorCode.invalid_txn_state
    append(made, 0, NOW_MS, verified(log, parse_header(made)))
    append(made, 0, NOW_MS)
    assert log.stable_below(2) == 0
    again = open_log(log.storage.disk.after_kill())
    assert again.stable_below(2) == 0
    end(again, 7)
    assert again.stable_below(3) == 3


@pytest.mark.parametrize("how", ["clean", "killed", "no snapshot"])
def test_an_open_transaction_is_known_after_a_restart(how):
    log = open_log(segment_bytes=200)
    lead(log, sent(b"k", b"a", 7))
    end(log, 7, coordinator_epoch=4)
    for number in range(1, 6):
        lead(log, sent(b"k", b"b", 7, sequence=number))
    if how == "clean":
        settle(log)
    disk = log.storage.disk.after_kill()
    for name in disk.names(log.directory):
        if how == "no snapshot" and name.endswith(".snapshot"):
            disk.remove(f"{log.directory}/{name}")
    again = open_log(disk, opening={"clean": how == "clean"}, segment_bytes=200)
    assert again.stable_below(7) == 2
    lead(again, sent(b"k", b"c", 7, sequence=6), guard=None)
    fenced = refusal(end, again, 7, coordinator_epoch=3)
    assert fenced is ErrorCode.transaction_coordinator_fenced
    end(again, 7, coordinator_epoch=5, commit=False)
    assert again.segments.active.aborted.entries[-1] == AbortedTransaction(7, 2, 8, 9)


@pytest.mark.parametrize(
    "settings",
    [{"message_timestamp_type": "LogAppendTime"}, {"compression_type": "gzip"}],
)
def test_a_batch_that_is_rewritten_stays_transactional(settings):
    log = open_log(**settings)
    lead(log, sent(b"k", b"a", 7))
    assert log.stable_below(1) == 0
    end(log, 7, commit=False)
    assert committed(log, 0, 2) == []
    assert open_log(log.storage.disk.after_kill()).stable_below(2) == 2


def test_guards_expire_with_their_producers():
    log = open_log()
    first = sent(b"k", b"a", 7)
    guard = verified(log, parse_header(first))
    run(log.producers.expire(NOW_MS))
    assert verified(log, parse_header(first)) is guard
    run(log.producers.expire(NOW_MS + 1))
    assert refusal(lead, log, first, guard=guard) is ErrorCode.invalid_txn_state
