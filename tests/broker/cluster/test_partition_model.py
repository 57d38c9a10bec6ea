"""One partition under any sequence of commands, produces, fetches and kills.

The model is a list of records, a leader, an ISR, and the time and offset of each
follower's last fetch. The high watermark is the smallest log end of the replicas that
are in the ISR, proposed for the ISR, or live and caught up. The high watermark never
decreases, and stays while the ISR is smaller than ``min.insync.replicas``.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.broker_world import NONE, Call, World
from tests.broker.apis.requests import (
    batch,
    fetch_fields,
    leader_and_isr,
    produce_fields,
    values_of,
)

T = ("t", 0)
NEVER_S = -1000
LAG_S = 30
# Most commands raise the epoch and make broker 0 the leader.
LEADERS = st.sampled_from([0, 0, 0, 1])
RAISED_BY = st.sampled_from([1, 1, 1, 1, 2, 0, -1])
ISRS = st.sampled_from([(0,), (0, 1), (0, 2), (0, 1, 2)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("command"), LEADERS, ISRS, RAISED_BY),
        st.tuples(st.just("produce"), st.sampled_from([1, -1])),
        st.tuples(st.just("follower"), st.sampled_from([1, 2]), st.integers(-2, 1)),
        st.tuples(st.just("live"), st.sampled_from([(), (1,), (1, 2)])),
        st.tuples(st.just("wait"), st.sampled_from([1, LAG_S - 1, LAG_S])),
        st.tuples(st.just("restart")),
    ),
    max_size=30,
)


class Model:
    """Expected state of t-0."""

    def __init__(self, min_insync: int) -> None:
        self.world = World()
        self.world.create("t", min_insync_replicas=str(min_insync))
        self.min_insync, self.replicas, self.now_s = min_insync, 1, 0
        self.records: list[bytes] = []
        self.leader, self.epoch, self.isr = 0, 0, (0,)
        self.ends: dict[int, int] = {}
        # Per follower: when it was last caught up; log end and time of its last fetch.
        self.caught_up_s: dict[int, int] = {}
        self.asked: dict[int, tuple[int, int]] = {}
        self.live_brokers: tuple[int, ...] = ()
        self.proposed: tuple[int, ...] = ()
        self.high_watermark = self.begun_at = 0
        # Waiting calls with acks=-1, with the offset after their record.
        self.waiting: list[tuple[Call, int]] = []

    @property
    def leads(self) -> bool:
        return self.leader == 0

    @property
    def has_enough(self) -> bool:
        """Whether the ISR has ``min.insync.replicas``, or has all replicas."""
        return len(self.isr) >= min(self.min_insync, self.replicas)

    def counts(self, replica: int) -> bool:
        """Return whether the high watermark waits for a replica."""
        has_all = self.ends.get(replica, -1) == len(self.records)
        since_s = self.caught_up_s.get(replica, NEVER_S)
        keeps_up = has_all or self.now_s - since_s <= LAG_S
        may_join = replica in self.live_brokers and keeps_up
        return replica in (*self.isr, *self.proposed) or may_join

    def advance(self) -> None:
        """Advance the high watermark, and check the answers of the calls that wait."""
        ends = [self.ends.get(i, -1) for i in (1, 2) if self.counts(i)]
        if self.leads and self.has_enough:
            end = min([len(self.records), *(ends if self.replicas > 1 else ())])
            self.high_watermark = max(self.high_watermark, end)
        left = []
        for call, required in self.waiting:
            if not self.leads:
                assert outcome(call) is ErrorCode.not_leader_or_follower
            elif required <= self.high_watermark:
                assert outcome(call) is NONE
            else:
                assert not call.done
                left.append((call, required))
        self.waiting = left

    def command(self, leader: int, isr: tuple[int, ...], raised_by: int) -> None:
        epoch = self.epoch + raised_by
        command = leader_and_isr(
            T, leader=leader, leader_epoch=epoch, isr=isr, replicas=(0, 1, 2)
        )
        answer = self.world.command(ApiKey.LEADER_AND_ISR, command)
        error = answer.partition_errors[0].error_code
        if raised_by <= 0:
            assert error is ErrorCode.stale_controller_epoch
            return
        assert error is NONE
        self.leader, self.epoch, self.isr = leader, epoch, isr
        self.replicas, self.begun_at = 3, len(self.records)
        self.forget()
        self.caught_up_s = dict.fromkeys(isr, self.now_s)
        self.advance()

    def forget(self) -> None:
        """Forget the state of all followers."""
        self.ends.clear()
        self.caught_up_s.clear()
        self.asked.clear()
        self.proposed = ()

    def live(self, brokers: tuple[int, ...]) -> None:
        """Announce the other live brokers, as a controller does."""
        self.live_brokers = brokers
        self.world.live(*brokers)

    def wait(self, seconds: int) -> None:
        """Advance the clock without any event."""
        self.now_s += seconds
        self.world.now_ns = self.now_s * 10**9

    def produce(self, acks: int) -> None:
        value = b"%d" % len(self.records)
        fields = produce_fields({T: batch(value)}, acks)
        call = self.world.start(ApiKey.PRODUCE, 9, **fields)
        if not self.leads:
            assert outcome(call) is ErrorCode.not_leader_or_follower
            return
        if acks == -1 and not self.has_enough:
            assert outcome(call) is ErrorCode.not_enough_replicas
            return
        self.records.append(value)
        if acks == -1:
            self.waiting.append((call, len(self.records)))
        else:
            assert outcome(call) is NONE
        self.advance()

    def follower(self, replica: int, behind: int) -> None:
        """Fetch as a replica from ``behind`` the end; beyond the end is an error."""
        offset = len(self.records) + behind
        fields = fetch_fields({T: offset}, replica_id=replica)
        answer = self.world.send(ApiKey.FETCH, 12, **fields)
        error = answer.responses[0].partitions[0].error_code
        if not self.leads or replica not in self.known_replicas():
            assert error is ErrorCode.not_leader_or_follower
        elif not 0 <= offset <= len(self.records):
            assert error is ErrorCode.offset_out_of_range
        else:
            assert error is NONE
            self.note_fetch(replica, offset)
            self.advance()

    def note_fetch(self, replica: int, offset: int) -> None:
        end_then, then_s = self.asked.get(replica, (-1, NEVER_S))
        if offset == len(self.records):
            self.caught_up_s[replica] = self.now_s
        elif offset >= end_then:
            known_s = self.caught_up_s.get(replica, NEVER_S)
            self.caught_up_s[replica] = max(known_s, then_s)
        self.asked[replica] = (len(self.records), self.now_s)
        self.ends[replica] = offset
        is_news = replica not in self.isr and not self.proposed
        has_enough = offset >= max(self.high_watermark, self.begun_at)
        if is_news and has_enough and replica in self.live_brokers:
            self.proposed = (replica,)

    def known_replicas(self) -> tuple[int, ...]:
        return self.world.broker.replicas.partitions[T].replicas

    def restart(self) -> None:
        """Kill the broker; the embedded coordinator leads alone afterwards."""
        self.world = self.world.restarted()
        self.waiting.clear()
        self.forget()
        self.live_brokers = ()
        self.leader, self.isr, self.replicas = 0, (0,), 1
        epoch = self.world.broker.replicas.partitions[T].leader_epoch
        # Epochs without records are not on the disk, so they may be used again.
        self.epoch = epoch
        self.high_watermark = len(self.records)

    def check(self) -> None:
        self.world.check()
        partition = self.world.broker.replicas.partitions[T]
        assert (partition.leader, partition.leader_epoch) == (self.leader, self.epoch)
        assert partition.isr == self.isr
        answer = self.world.fetch("t")
        assert answer.error_code is NONE
        assert answer.high_watermark == self.high_watermark
        found = [value for _, value in values_of(answer.records)]
        assert found == self.records[: self.high_watermark]
        assert self.world.broker.replicas.produce_purgatory.size == len(self.waiting)


def outcome(call: Call) -> ErrorCode:
    error: ErrorCode = call.answer.responses[0].partition_responses[0].error_code
    return error


@settings(max_examples=150)
@given(STEPS, st.integers(1, 3))
def test_a_partition_does_what_a_list_and_an_isr_would_do(
    steps: list[tuple[Any, ...]], min_insync: int
) -> None:
    model = Model(min_insync)
    for name, *arguments in steps:
        getattr(model, name)(*arguments)
        model.check()
