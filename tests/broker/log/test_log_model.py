"""The log compared with a list of batches: appends, cuts, restarts, power losses."""

import random
from bisect import bisect_left

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from broker.log import flushing, trimming
from broker.log import log_reading as reading
from broker.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.witness import (
    NOW_MS,
    altered,
    batch,
    everything,
    found_at,
    found_newest,
    open_log,
    truncate_to,
)

CONFIG = {"segment_bytes": 1000, "index_interval_bytes": 200}


class LogMachine(RuleBasedStateMachine):
    """State machine whose ``model`` lists the batches.

    An entry is (base offset, last offset, bytes, timestamps, leader epoch).
    """

    @initialize()
    def begin(self):
        self.log = open_log(**CONFIG)
        self.model = []
        self.start = self.end = self.flushed = 0
        self.epoch = 0
        self.dice = random.Random(7)
        # The single idempotent producer: its next sequence number and its sent batches.
        self.sequence, self.sent = 0, []

    # ---- client operations ----

    @rule(
        values=st.lists(st.binary(max_size=30), min_size=1, max_size=4),
        codec=st.sampled_from([0, 0, 1, 4]),
        times=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    )
    def append(self, values, codec, times):
        times = [NOW_MS + time for time in times[: len(values)]]
        self._append(batch(values, codec=codec, timestamps=times), times)

    @rule(count=st.integers(1, 3))
    def append_idempotent(self, count):
        times = [NOW_MS] * count
        sent = batch([b"i"] * count, producer_id=5, epoch=0, sequence=self.sequence)
        self.sequence += count
        self.sent.append((self.end, self.end + count - 1, sent))
        self._append(sent, times)

    def _append(self, sent, times):
        appended = self.log.append(sent, self.epoch, NOW_MS)
        assert appended == (self.end, self.end + len(times) - 1, -1, self.start)
        fields = {0: ("q", self.end), 12: ("i", self.epoch)}
        stored = altered(sent, fields, new_crc=False)
        self.model.append((self.end, appended.last_offset, stored, times, self.epoch))
        self.end += len(times)

    @precondition(lambda self: self.sent)
    @rule(back=st.integers(1, 5))
    def repeat(self, back):
        """Send one of the last five batches again; the response is the first one."""
        base, last, sent = self.sent[-min(back, len(self.sent))]
        assert self.log.append(sent, 0, NOW_MS)[:2] == (base, last)

    @precondition(lambda self: self.sent)
    @rule(skip=st.integers(1, 3))
    def leave_a_gap(self, skip):
        sent = batch([b"i"], producer_id=5, epoch=0, sequence=self.sequence + skip)
        with pytest.raises(KafkaError) as refused:
            self.log.append(sent, 0, NOW_MS)
        assert refused.value.code is ErrorCode.out_of_order_sequence_number

    @rule(at=st.integers(0, 100), size=st.integers(1, 1500), bound=st.integers(0, 100))
    def read(self, at, size, bound):
        offset = self.start + at * (self.end - self.start) // 100
        up_to = self.start + bound * (self.end - self.start) // 100
        piece = reading.read(self.log, offset, size, up_to)
        wanted = [b for b in self.model if b[1] >= offset and b[1] < up_to]
        if not wanted:
            assert piece is None
            return
        expected = b"".join(b[2] for b in wanted)
        first = len(wanted[0][2])
        data = piece.read()
        assert expected.startswith(data)
        assert first <= len(data) <= max(size, first)

    @rule(time=st.integers(-1, 51))
    def look_up_time(self, time):
        records = [
            (at, base + number, epoch)
            for base, _, _, times, epoch in self.model
            for number, at in enumerate(times)
            if base + number >= self.start
        ]
        wanted = NOW_MS + time
        newer = [record for record in records if record[0] >= wanted]
        found = found_at(self.log, wanted)
        assert found == (newer[0] if newer else None)
        newest = found_newest(self.log)
        if records and self.model[0][0] >= self.start:
            assert newest == max(records, key=lambda record: (record[0], -record[1]))

    # ---- broker and operator operations ----

    @rule()
    def new_leader(self):
        self.epoch += 1

    @rule()
    def roll(self):
        self.log.roll(NOW_MS)

    @rule()
    def flush(self):
        flushing.flush(self.log)
        self.flushed = self.end
        assert self.log.recovery_point == self.end

    @rule(at=st.integers(0, 100))
    def delete_records(self, at):
        offset = self.start + at * (self.end - self.start) // 100
        trimming.delete_records_before(self.log, offset)
        self.start = max(self.start, offset)

    @rule(at=st.integers(70, 100))
    def truncate(self, at):
        offset = self.start + at * (self.end - self.start) // 100
        end = truncate_to(self.log, offset, NOW_MS)
        self._ends_at(offset)
        assert end == self.end

    def _ends_at(self, offset):
        """Cut the model; a batch that contains the offset is removed as a whole."""
        cut = bisect_left(self.model, offset, key=lambda b: b[1])
        gone = [b for b in self.model[cut:] if b[0] < offset]
        self.end = min(self.end, gone[0][0] if gone else offset)
        del self.model[cut:]
        self.start = min(self.start, self.end)
        self.flushed = min(self.flushed, self.end)
        self.sent = [each for each in self.sent if each[1] < self.end]
        kept = [sent for _, _, sent in self.sent[-1:]]
        if kept:
            self.sequence = int.from_bytes(kept[0][53:57]) + 1 + kept[0][26]
        else:
            self.sequence = 0

    # ---- restarts ----

    @rule()
    def restart(self):
        flushing.settle(self.log)
        self.flushed = self.end
        self._open(self.log.storage.disk.after_kill(), clean=True)

    @rule(checkpointed=st.booleans())
    def kill(self, checkpointed):
        point = self.log.recovery_point if checkpointed else 0
        self._open(self.log.storage.disk.after_kill(), recovery_point=point)
        assert self.log.log_end_offset == self.end

    @rule(checkpointed=st.booleans())
    def power_loss(self, checkpointed):
        flushing.flush(self.log)
        self.flushed = self.end
        self._append(batch([b"not flushed"] * 2), [NOW_MS] * 2)
        self._append(batch([b"nor this"]), [NOW_MS])
        point = self.log.recovery_point if checkpointed else 0
        left = self.log.storage.disk.after_power_loss(self.dice)
        start = self.start
        self._open(left, recovery_point=point)
        assert self.flushed <= self.log.log_end_offset <= self.end
        self._ends_at(self.log.log_end_offset)
        assert start == self.start
        assert self.log.log_end_offset == self.end

    def _open(self, storage, **opening):
        opening["log_start_offset"] = self.log.log_start_offset
        self.log = open_log(storage, opening=opening, **CONFIG)

    @invariant()
    def holds_the_same(self):
        if not hasattr(self, "log"):
            return
        assert (self.log.log_start_offset, self.log.log_end_offset) == (
            self.start,
            self.end,
        )
        self.log.check()
        first = bisect_left(self.model, self.start, key=lambda b: b[1])
        assert everything(self.log) == b"".join(b[2] for b in self.model[first:])


LogMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, report_multiple_bugs=False
)
TestLogAgainstAList = LogMachine.TestCase
