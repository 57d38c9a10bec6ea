"""Three replicas of one partition, running broker code under faults.

Leaders change; a former leader may learn it late and go on leading. Brokers are killed
or lose their disks, disks are full for a while, followers lag and are truncated. In the
end all disks have room, and every follower reaches its leader's end offset.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from broker.cluster.partition import Partition
from broker.disk.memory import Faults
from broker.log import flushing
from broker.log.steps import run
from broker.log.upkeep import mending
from broker.protocol.errors import ErrorCode, KafkaError
from broker.replication.replica_fetcher import Following, SentFetch
from tests.broker.log.witness import NOW_MS
from tests.broker.replication.replica import Replica, T

EVERYBODY: Final = (0, 1, 2)
REPLICA: Final = st.sampled_from(EVERYBODY)
FULL: Final = ErrorCode.kafka_storage_error
# After this number of responses any follower reaches its leader's end.
ROUNDS: Final = 20


class ThreeReplicas(RuleBasedStateMachine):
    """The replicas and their controller; each rule is one event."""

    def prepare(self) -> None:
        """Prepare the state of a subclass."""

    @initialize()
    def begin(self) -> None:
        self.replicas = [Replica(number) for number in EVERYBODY]
        self.isr: tuple[int, ...] = EVERYBODY
        self.epoch, self.partition_epoch = -1, 0
        self._elect(0)
        for replica in self.replicas:
            self._tell(replica)
        self.prepare()

    # ---- the controller ---------------------------------------------------------

    @property
    def leader(self) -> Replica:
        leader: int = self.word.leader
        return self.replicas[leader]

    def _elect(self, number: int) -> None:
        self.epoch += 1
        self.partition_epoch += 1
        self.word = SimpleNamespace(
            controller_epoch=1,
            leader=number,
            leader_epoch=self.epoch,
            isr=self.isr,
            partition_epoch=self.partition_epoch,
            replicas=EVERYBODY,
            adding_replicas=(),
            removing_replicas=(),
        )
        self._tell(self.replicas[number])

    def _tell(self, replica: Replica) -> None:
        with unless_full(replica):
            replica.hears(self.word)

    def _decide(self, isr: tuple[int, ...]) -> None:
        self.isr = isr
        self.partition_epoch += 1
        leader = self.leader.partition
        assert leader.accept_isr(self.epoch, isr, self.partition_epoch)

    @rule(number=REPLICA)
    def another_leads(self, number: int) -> None:
        """Elect a leader; the former one goes on until it receives the new state."""
        if number in self.isr:
            self._elect(number)

    @rule(number=REPLICA)
    def hears(self, number: int) -> None:
        self._tell(self.replicas[number])

    @rule(number=REPLICA)
    def falls_behind(self, number: int) -> None:
        if number != self.word.leader and len(self.isr) == len(EVERYBODY):
            self._decide(tuple(each for each in self.isr if each != number))

    @rule(number=REPLICA)
    def has_caught_up(self, number: int) -> None:
        """Fetch as a follower and join the ISR; the fetch also reveals a lost disk."""
        self._fetch(self.replicas[number], 1)
        leader = self.leader.partition
        if number not in self.isr and leader.propose_expansion(number):
            assert leader.proposed_isr is not None
            self._decide(leader.proposed_isr)

    # ---- followers --------------------------------------------------------------

    @rule(number=REPLICA, max_bytes=st.sampled_from([1, 300, 10_000]))
    def fetches(self, number: int, max_bytes: int) -> None:
        self._fetch(self.replicas[number], max_bytes)

    @rule(number=REPLICA)
    def fetches_all(self, number: int) -> None:
        replica = self.replicas[number]
        self._tell(replica)
        for _ in range(3):
            self._fetch(replica, 10_000)

    def _fetch(self, replica: Replica, max_bytes: int) -> None:
        with unless_full(replica):
            replica.cut()
        asked = run(replica.fetcher.request())
        if asked is None:
            return
        (each, offset) = asked.offsets[T]
        leader = self.replicas[replica.partition.leader].partition
        try:
            answer = self._answer(replica, each, offset, leader, max_bytes)
        except KafkaError as refused:
            answer = SimpleNamespace(error_code=refused.code, records=None)
        answer.partition_index = 0
        self._take(replica, asked, answer)
        if each.out_of_range:
            log = leader.log
            with unless_full(replica):
                replica.fetcher.realign(each, log.log_start_offset, log.log_end_offset)

    def _take(self, replica: Replica, sent: SentFetch, answer: Any) -> None:
        topic = SimpleNamespace(topic="t", partitions=[answer])
        whole: Any = SimpleNamespace(error_code=ErrorCode.none, responses=[topic])
        run(replica.fetcher.take(sent, whole))

    def _answer(
        self,
        replica: Replica,
        each: Following,
        offset: int,
        leader: Partition,
        max_bytes: int,
    ) -> Any:
        leader.check_epoch(each.leader_epoch)
        log = replica.log
        latest, parting, piece = log.epochs.latest, None, None
        if latest >= 0:
            ours = leader.epoch_end_offset(latest)
            if ours.end_offset < 0:
                raise KafkaError(ErrorCode.offset_out_of_range)
            if ours.epoch < latest or ours.end_offset < offset:
                parting = ours
        if parting is None:
            piece = leader.read(offset, max_bytes, is_follower=True, min_one=True)
            leader.note_follower_fetch(replica.number, offset, log.log_start_offset)
            leader.advance_high_watermark()
        return SimpleNamespace(
            error_code=ErrorCode.none,
            high_watermark=leader.high_watermark,
            log_start_offset=leader.log.log_start_offset,
            records=piece.read() if piece is not None else b"",
            diverging_epoch=parting,
        )

    # ---- brokers and operators --------------------------------------------------

    @rule(number=REPLICA, flushed=st.booleans(), known=st.booleans())
    def is_killed(self, number: int, flushed: bool, known: bool) -> None:
        """Kill the broker; ``known`` tells whether its high watermark was written."""
        replica = self.replicas[number]
        if flushed:
            with unless_full(replica):
                flushing.flush(replica.log)
        self._restart(
            replica,
            recovery_point=replica.log.recovery_point,
            high_watermark=replica.partition.high_watermark if known else 0,
        )

    @rule(number=REPLICA)
    def is_restarted(self, number: int) -> None:
        replica = self.replicas[number]
        watermark = replica.partition.high_watermark
        with unless_full(replica):
            flushing.settle(replica.log)
            self._restart(replica, clean=True, high_watermark=watermark)
            return
        self._restart(
            replica,
            recovery_point=replica.log.recovery_point,
            high_watermark=watermark,
        )

    def _restart(self, replica: Replica, **options: int) -> None:
        number, log = replica.number, replica.log
        start, disk = log.log_start_offset, log.storage.disk.after_kill()
        disk.capacity_bytes = None
        again = Replica(number, disk, log_start_offset=start, **options)
        self.replicas[number] = again
        if number == self.word.leader:
            self._elect(next(each for each in self.isr if each != number))

    @rule(number=REPLICA)
    def loses_its_disk(self, number: int) -> None:
        if number not in self.isr:
            self.replicas[number] = Replica(number)

    @rule(number=REPLICA)
    def rolls(self, number: int) -> None:
        with unless_full(self.replicas[number]):
            self.replicas[number].log.roll(NOW_MS)

    @rule(number=REPLICA, call=st.integers(0, 8))
    def has_no_room(self, number: int, call: int) -> None:
        """Fill the disk; a flush may then fail at its ``call``-th disk call."""
        replica = self.replicas[number]
        disk_of(replica).fill_up()
        if call:
            disk_of(replica).faults = Faults(call, error=errno.ENOSPC)
            with unless_full(replica):
                flushing.flush(replica.log)
            disk_of(replica).faults = Faults()

    @rule(number=REPLICA)
    def has_room(self, number: int) -> None:
        replica = self.replicas[number]
        disk_of(replica).capacity_bytes = None
        if replica.log.durability.out_of_service and not run(mending.mend(replica.log)):
            # Unsynced directory entries can only be repaired by a restart.
            self.is_killed(number, flushed=False, known=True)

    # ---- the end ----------------------------------------------------------------

    def teardown(self) -> None:
        """Check that followers catch up once all disks have room."""
        if not hasattr(self, "replicas"):
            return
        for number in EVERYBODY:
            self.has_room(number)
            self._tell(self.replicas[number])
        end = self.leader.log.log_end_offset
        for number in EVERYBODY:
            for _ in range(ROUNDS):
                self._fetch(self.replicas[number], 10_000)
            assert self.replicas[number].log.log_end_offset == end, number


def disk_of(replica: Replica) -> Any:
    """Return the disk of a replica's log."""
    return replica.log.storage.disk


@contextmanager
def unless_full(replica: Replica) -> Iterator[None]:
    """Ignore errors of a full disk, and no others."""
    try:
        yield
    except KafkaError as refused:
        if refused.code is not FULL or disk_of(replica).capacity_bytes is None:
            raise
