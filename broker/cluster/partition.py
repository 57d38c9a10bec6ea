"""One replica of one partition: its leader, its epochs, its high watermark.

Kafka's ``Partition``. The controller's state comes as a `LeaderAndIsrPartitionState`;
epochs only go up. The leader appends, and the high watermark is the smallest log end
offset in the ISR: a lone replica's own, otherwise the minimum shown by its followers'
fetches. It also waits for replicas that keep up and may join the ISR, and stays where
it is while fewer are in sync than acks=all needs (KIP-966). Consumers read up to the
high watermark, those of committed records up to the last stable offset, followers to
the end.

One thread runs all this, and nothing here suspends: a partition needs neither Kafka's
``leaderIsrUpdateLock`` nor a re-check after each append.

A follower's log is written and cut by its fetcher (``broker.replication``). The leader
proposes the ISR, and the controller decides (KIP-497).
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
    """A partition that this broker holds a replica of.

    ``min_insync`` returns the present ``min.insync.replicas``, since the config is
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
        # The ISR proposed to the controller, and the replicas that may be in it by now:
        # the high watermark waits for all of these (KIP-497).
        self.proposed_isr: tuple[int, ...] | None = None
        self.maximal_isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.followers: dict[int, Follower] = {}
        self.high_watermark = min(
            max(high_watermark, log.log_start_offset), log.log_end_offset
        )
        # The log's end when this leadership began; nothing while following.
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
        """Return whether the directory of its log has failed, until a restart."""
        return self.log.closed is not None

    # ---- what the controller says -----------------------------------------------

    def make_leader(self, state: LeaderAndIsrPartitionState) -> None:
        """Lead from now on, unless the controller's word is an old one."""
        self._adopt(state, is_leader=True)

    def make_follower(self, state: LeaderAndIsrPartitionState) -> None:
        """Follow ``state.leader`` from now on, unless that is an old word."""
        self._adopt(state, is_leader=False)

    def _adopt(self, state: LeaderAndIsrPartitionState, *, is_leader: bool) -> None:
        if state.partition_epoch < self.partition_epoch:
            return
        if not is_leader:
            self.epoch_start_offset = None
        elif not self.is_leader or state.leader_epoch > self.leader_epoch:
            # Nothing that followers fetched under another epoch counts any more.
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

        ``prepared`` is what `Log.prepare` made of it, if that was done before;
        ``guard`` is needed to begin a transaction.
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
        """Append a marker, or offsets of a transaction, as acks=all does."""
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
        """Raise `KafkaError` unless this leads, with as many in sync as ``acks`` wants.

        To be asked before a batch is validated, as Kafka does, and when it is appended.
        """
        if not self.is_leader:
            raise self.not_leader()
        if acks == ALL_REPLICAS and self.is_under_min_isr:
            least = self.effective_min_isr
            told = f"the in-sync replicas are {self.isr}, expected {least}"
            raise KafkaError(ErrorCode.not_enough_replicas, told)

    def advance_high_watermark(self) -> bool:
        """Move the high watermark to what all have that count; True if it moved.

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
        """Note how far a follower has come; True if the low watermark may have moved.

        The high watermark is to be advanced next, after what this does to the ISR.
        """
        end, now_ns = self.log.log_end_offset, self._sync.now_ns()
        follower = self.followers[replica]
        return follower.note_fetch(log_end_offset, log_start_offset, end, now_ns)

    def check_follower(self, replica: int, current_leader_epoch: int) -> None:
        """Raise unless ``replica`` is one of this partition's."""
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
        """Return the outcome for a Produce with acks=-1, None while it must wait.

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
        """The number of replicas that acks=all needs: at most all (Kafka 3.7)."""
        return min(self._min_insync(), len(self.followers) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Return whether this leads, and has fewer in sync than acks=all needs."""
        return self.is_leader and len(self.isr) < self.effective_min_isr

    # ---- the ISR ----------------------------------------------------------------

    def propose_shrinking(self) -> bool:
        """Propose an ISR without those that do not keep up.

        True if there is something to propose, and nothing has been already.
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
        """Propose an ISR with a follower that has all that is committed.

        It must also be alive, and have all that this leadership began with. True if
        there is something to propose, and nothing has been already.
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
        """Leave the ISR as it is: the controller did not try, or refuses a replica."""
        self._set_isr(self.isr)

    def accept_isr(
        self, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int
    ) -> bool:
        """Apply the controller's decision on a proposal; True if it is new."""
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
        """Go on with a log of the same content, in another directory."""
        self.log = log
        self.withheld.moved(log)

    # ---- the follower -----------------------------------------------------------

    def follow_high_watermark(self, of_leader: int) -> None:
        """Take the leader's high watermark, as far as the log goes.

        It never goes back: a committed record stays committed, whatever a new leader
        knows.
        """
        known = min(of_leader, self.log.log_end_offset)
        self.high_watermark = max(self.high_watermark, known)

    # ---- readers ----------------------------------------------------------------

    def check_epoch(
        self, current_leader_epoch: int, *, leader_only: bool = True
    ) -> None:
        """Raise unless the client's leader epoch is ours and we may answer it.

        -1 is no epoch: the client does not say. Kafka's ``getLocalLog``.
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
        """Return the error for a request that only a leader may answer."""
        return KafkaError(ErrorCode.not_leader_or_follower, repr(self))

    @property
    def last_stable_offset(self) -> int:
        """The end for a reader of committed records."""
        return self.log.stable_below(self.high_watermark)

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all that live, -1 while one's is unknown."""
        return self._sync.common_start(self.log.log_start_offset, self.followers)

    def read_end(self, *, is_follower: bool, committed: bool = False) -> int:
        """Return the offset that this kind of reader may read up to."""
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

        ``committed``: of no transaction that is open. Raises OFFSET_OUT_OF_RANGE
        outside log start to log end.
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
        """Return the epoch that ``offset`` is or would be written in, -1 if unknown."""
        start = self.epoch_start_offset
        return epoch_ends.epoch_of(self.log, offset, self.leader_epoch, start)

    def epoch_end_offset(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to ``epoch``, and where it ended."""
        start = self.epoch_start_offset
        return epoch_ends.epoch_end_offset(self.log, epoch, self.leader_epoch, start)

    def check(self) -> None:
        """Assert that offsets and roles fit together."""
        log = self.log
        assert log.log_start_offset <= self.high_watermark <= log.log_end_offset, self
        assert self.is_leader == (self.leader == self.local_id), self
        assert self.is_leader == (self.epoch_start_offset is not None), self
        assert self.local_id not in self.followers, self
