"""One replica of one partition: its leader, its epochs, its high watermark.

Kafka's ``Partition``. The controller's state comes as a `LeaderAndIsrPartitionState`;
epochs never decrease. The leader appends, and the high watermark is the smallest log
end offset in the ISR, which the leader learns from its followers' fetches. The high
watermark also waits for replicas that keep up and may join the ISR. It does not advance
while the ISR is smaller than acks=all requires (KIP-966). Consumers read up to the high
watermark, those of committed records up to the last stable offset, and followers up to
the end.

All calls run on one thread, and none of them suspends: a partition needs neither
Kafka's ``leaderIsrUpdateLock`` nor a second check after each append.

A follower's log is written and truncated by its fetcher (``broker.replication``). The
leader proposes the ISR, and the controller decides (KIP-497).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from broker.cluster import epoch_ends
from broker.cluster.flush_barrier import FlushBarrier
from broker.cluster.follower import Follower, SyncRules
from broker.disk.storage import FileSlice
from broker.log.log import Appended, Log
from broker.log.log_reading import read
from broker.log.transactions import VerificationGuard
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.schemas.leader_and_isr_schema import LeaderAndIsrPartitionState
from broker.protocol.sentinels import NO_EPOCH, NO_LEADER
from broker.protocol.topic_partition import TopicPartition
from broker.protocol.wire.hot import CurrentLeader, EpochEnd

ALL_REPLICAS: Final = -1


class Partition:
    """A partition with a replica on this broker.

    ``min_insync`` returns the current ``min.insync.replicas``, since the config is
    dynamic; ``high_watermark`` is the checkpointed one.
    """

    __slots__ = (
        "_min_insync",
        "_sync",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "is_leader",
        "is_reassigning",
        "isr",
        "key",
        "leader",
        "leader_epoch",
        "local_id",
        "log",
        "maximal_isr",
        "partition_epoch",
        "proposed_isr",
        "replicas",
        "topic_id",
        "withheld",
    )

    def __init__(
        self,
        key: TopicPartition,
        topic_id: UUID | None,
        log: Log,
        *,
        local_id: int,
        min_insync: Callable[[], int],
        sync: SyncRules,
        high_watermark: int = 0,
    ) -> None:
        self.key = key
        self.topic_id = topic_id
        self.log = log
        self.withheld = FlushBarrier(log)
        self.local_id = local_id
        self._min_insync = min_insync
        self._sync = sync
        self.is_leader = self.is_reassigning = False
        self.leader = NO_LEADER
        self.leader_epoch = NO_EPOCH
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        # The ISR proposed to the controller, and the replicas that may be in the ISR by
        # now: the high watermark waits for all of the latter (KIP-497).
        self.proposed_isr: tuple[int, ...] | None = None
        self.maximal_isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.followers: dict[int, Follower] = {}
        self.high_watermark = min(
            max(high_watermark, log.log_start_offset), log.log_end_offset
        )
        # The log's end when this leadership began; None for a follower.
        self.epoch_start_offset: int | None = None

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        topic, index = self.key
        return (
            f"<partition {topic}-{index}: {role} in epoch {self.leader_epoch}, "
            f"isr {self.isr}, hw {self.high_watermark}>"
        )

    @property
    def is_offline(self) -> bool:
        """Return whether the log is closed, because its directory has failed."""
        return self.log.closed is not None

    # ---- changes by the controller ----------------------------------------------

    def make_leader(self, state: LeaderAndIsrPartitionState) -> None:
        """Become the leader, unless the controller's state is outdated."""
        self._adopt(state, is_leader=True)

    def make_follower(self, state: LeaderAndIsrPartitionState) -> None:
        """Follow ``state.leader``, unless the controller's state is outdated."""
        self._adopt(state, is_leader=False)

    def _adopt(self, state: LeaderAndIsrPartitionState, *, is_leader: bool) -> None:
        if state.partition_epoch < self.partition_epoch:
            return
        if not is_leader:
            self.epoch_start_offset = None
        elif not self.is_leader or state.leader_epoch > self.leader_epoch:
            # Fetches of followers in an earlier epoch no longer count.
            self.epoch_start_offset = self.log.log_end_offset
            now_ns = self._sync.now_ns()
            self.followers = {it: Follower(caught_up_ns=now_ns) for it in state.isr}
        self.is_leader = is_leader
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self._set_isr(tuple(state.isr))
        self.replicas = tuple(state.replicas)
        self.is_reassigning = bool(state.adding_replicas or state.removing_replicas)
        others = {replica for replica in self.replicas if replica != self.local_id}
        self.followers = {
            replica: self.followers.get(replica, Follower())
            for replica in sorted(others if is_leader else ())
        }
        if is_leader:
            self.advance_high_watermark()

    # ---- the leader -------------------------------------------------------------

    def append(
        self,
        records: Buffer,
        acks: int,
        now_ms: int,
        prepared: Buffer | None = None,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append a producer's batch as the leader; raise `KafkaError` if refused.

        ``prepared`` is the result of an earlier `Log.prepare`, if any; ``guard`` is
        required to begin a transaction.
        """
        if not self.is_leader or acks == ALL_REPLICAS:
            self.check_append(acks)
        appended = self.log.append(records, self.leader_epoch, now_ms, prepared, guard)
        self._appended(now_ms)
        return appended

    def append_of_coordinator(
        self,
        batch: bytes,
        now_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Appended:
        """Append a marker, or offsets of a transaction, as with acks=all."""
        self.check_append(ALL_REPLICAS)
        log = self.log
        appended = log.append_of_coordinator(
            batch, self.leader_epoch, now_ms, guard, transaction_version
        )
        self._appended(now_ms)
        return appended

    def _appended(self, now_ms: int) -> None:
        if self.followers or self.log.flushes:
            self.withheld.note(now_ms)
            self.advance_high_watermark()
        else:
            self.high_watermark = self.log.log_end_offset

    def check_append(self, acks: int) -> None:
        """Raise `KafkaError` unless this leads, with the ISR that ``acks`` requires.

        Called before a batch is validated, as in Kafka, and again when it is appended.
        """
        if not self.is_leader:
            raise self.not_leader()
        if acks == ALL_REPLICAS and self.is_under_min_isr:
            least = self.effective_min_isr
            message = f"the in-sync replicas are {self.isr}, expected {least}"
            raise KafkaError(ErrorCode.not_enough_replicas, message)

    def advance_high_watermark(self) -> bool:
        """Advance the high watermark if possible; return whether it has advanced.

        Kafka's ``maybeIncrementLeaderHW``.
        """
        if self.is_under_min_isr:
            return False
        end = self._sync.common_end(
            self.log.log_end_offset, self.followers, self.maximal_isr
        )
        if self.log.flushes:
            end = self.withheld.shown(end)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def note_follower_fetch(
        self, replica: int, log_end_offset: int, log_start_offset: int
    ) -> bool:
        """Record a follower's offsets; True if the low watermark may have advanced.

        The caller next proposes an ISR if necessary, then advances the high watermark.
        """
        end, now_ns = self.log.log_end_offset, self._sync.now_ns()
        follower = self.followers[replica]
        return follower.note_fetch(log_end_offset, log_start_offset, end, now_ns)

    def check_follower(self, replica: int, current_leader_epoch: int) -> None:
        """Raise unless ``replica`` is a follower of this partition."""
        if replica in self.followers:
            return
        # A follower with an epoch received a reassignment before this leader did.
        known = current_leader_epoch == NO_EPOCH
        raise KafkaError(
            ErrorCode.not_leader_or_follower
            if known
            else ErrorCode.unknown_leader_epoch,
            f"replica {replica} is not one of {self.replicas}",
        )

    def acknowledged(self, required_offset: int) -> ErrorCode | None:
        """Return the outcome for a Produce with acks=-1; None while it has to wait.

        ``required_offset`` is the offset after the records. Kafka's
        ``checkEnoughReplicasReachOffset``.
        """
        if self.is_offline:
            return ErrorCode.kafka_storage_error
        if not self.is_leader:
            return ErrorCode.not_leader_or_follower
        if self.high_watermark < required_offset:
            return None
        if len(self.maximal_isr) < self.effective_min_isr:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    @property
    def effective_min_isr(self) -> int:
        """The ISR size that acks=all requires: at most all replicas (Kafka 3.7)."""
        return min(self._min_insync(), len(self.followers) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Return whether this leads, with a smaller ISR than acks=all requires."""
        return self.is_leader and len(self.isr) < self.effective_min_isr

    # ---- the ISR ----------------------------------------------------------------

    def propose_shrinking(self) -> bool:
        """Propose an ISR without the replicas that do not keep up.

        Returns whether there is a new proposal; there is at most one at a time.
        """
        if not self.is_leader or self.proposed_isr is not None:
            return False
        end, followers = self.log.log_end_offset, self.followers
        kept = tuple(
            each
            for each in self.isr
            if each not in followers or self._sync.keeps_up(followers[each], end)
        )
        if len(kept) == len(self.isr):
            return False
        self.proposed_isr = kept
        return True

    def propose_expansion(self, replica: int) -> bool:
        """Propose an ISR with a follower that has all committed records.

        The follower must also be live, and have all records from before this
        leadership. Returns whether there is a new proposal.
        """
        if not self.is_leader or self.proposed_isr is not None or replica in self.isr:
            return False
        if not self._sync.is_alive(replica):
            return False
        assert self.epoch_start_offset is not None
        needed = max(self.high_watermark, self.epoch_start_offset)
        if self.followers[replica].log_end_offset < needed:
            return False
        self.proposed_isr = (*self.isr, replica)
        self.maximal_isr = self.proposed_isr
        return True

    def withdraw_proposal(self) -> None:
        """Discard the proposal: it did not reach the controller, or was refused."""
        self._set_isr(self.isr)

    def accept_isr(
        self, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int
    ) -> bool:
        """Apply the controller's decision on a proposal; False if it is outdated."""
        if leader_epoch != self.leader_epoch or not self.is_leader:
            return False
        if partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._set_isr(isr)
        self.advance_high_watermark()
        return True

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = self.maximal_isr = isr
        self.proposed_isr = None

    def take_log(self, log: Log) -> None:
        """Replace the log by one of the same content in another directory."""
        self.log = log
        self.withheld.moved(log)

    # ---- the follower -----------------------------------------------------------

    def follow_high_watermark(self, of_leader: int) -> None:
        """Adopt the leader's high watermark, up to the end of the log.

        The high watermark never decreases: committed records stay committed, even if a
        new leader has a lower one.
        """
        known = min(of_leader, self.log.log_end_offset)
        self.high_watermark = max(self.high_watermark, known)

    # ---- readers ----------------------------------------------------------------

    def check_epoch(
        self, current_leader_epoch: int, *, leader_only: bool = True
    ) -> None:
        """Raise unless the client's leader epoch is the current one and this may serve.

        Epoch -1 is not checked: the client sent none. Kafka's ``getLocalLog``.
        """
        if current_leader_epoch not in (NO_EPOCH, self.leader_epoch):
            raise KafkaError(
                ErrorCode.fenced_leader_epoch
                if current_leader_epoch < self.leader_epoch
                else ErrorCode.unknown_leader_epoch,
                f"leader epoch {current_leader_epoch}, here it is {self.leader_epoch}",
            )
        if leader_only and not self.is_leader:
            raise self.not_leader()

    def not_leader(self) -> KafkaError:
        """Return the error for a request that only a leader may serve."""
        return KafkaError(ErrorCode.not_leader_or_follower, repr(self))

    @property
    def last_stable_offset(self) -> int:
        """The end offset for readers of committed records."""
        return self.log.stable_below(self.high_watermark)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of live replicas; -1 if one is unknown."""
        return self._sync.common_start(self.log.log_start_offset, self.followers)

    def read_end(self, *, is_follower: bool, committed: bool = False) -> int:
        """Return the end offset for a kind of reader."""
        if is_follower:
            return self.log.log_end_offset
        return self.last_stable_offset if committed else self.high_watermark

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        is_follower: bool,
        min_one: bool,
        committed: bool = False,
    ) -> FileSlice | None:
        """Return records from ``offset`` on; None if there are none yet.

        ``committed``: up to the last stable offset only. Raises OFFSET_OUT_OF_RANGE for
        offsets below the log start or above the log end.
        """
        log = self.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"offset {offset}, the log holds {log.log_start_offset} "
                f"to {log.log_end_offset}",
            )
        end = self.read_end(is_follower=is_follower, committed=committed)
        if offset >= end:
            log.check_open()
            return None
        return read(log, offset, max_bytes, end, min_one)

    def current_leader(self) -> CurrentLeader | None:
        """Return the leader, if there is one."""
        if self.leader < 0:
            return None
        return CurrentLeader(self.leader, self.leader_epoch)

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of an existing or the next offset; -1 if unknown."""
        start = self.epoch_start_offset
        return epoch_ends.epoch_of(self.log, offset, self.leader_epoch, start)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to ``epoch``, and its end offset."""
        start = self.epoch_start_offset
        return epoch_ends.epoch_end_offset(self.log, epoch, self.leader_epoch, start)

    def check(self) -> None:
        """Assert that offsets and roles are consistent."""
        log = self.log
        assert log.log_start_offset <= self.high_watermark <= log.log_end_offset, self
        assert self.is_leader == (self.leader == self.local_id), self
        assert self.is_leader == (self.epoch_start_offset is not None), self
        assert self.local_id not in self.followers, self
