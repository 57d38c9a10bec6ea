"""Bugs planted in transactions, one at a time, for the swarm to find.

There is at least one bug for each kind of anomaly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import pytest

from broker.client.consumer.consumer_record import ConsumerRecord
from broker.client.consumer.subscription_state import PartitionState
from broker.client.producer.producer_transactions import Transactions
from broker.cluster.partition import Partition
from broker.coordination.features import TRANSACTION_VERSION
from broker.groups.committed_offsets import Commits, Outcomes
from broker.groups.state.any_group import AnyGroup
from broker.groups.state.group_messages import OffsetCommit
from broker.log import log_reading as reading
from broker.log.log import Appended, Log
from broker.log.producers import Producers, ProducerState
from broker.log.segments.transaction_index import AbortedTransaction
from broker.log.transactions import Marker
from broker.protocol.buffer import Buffer
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.message import AnyRequest, AnyResponse
from broker.protocol.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from broker.protocol.topic_partition import TopicPartition
from broker.shards.effects import InTransaction
from broker.shards.parked_answer import Waiting
from broker.transactions.transaction import (
    ProducerIdAndEpoch,
    Transaction,
    TransactionValue,
)
from broker.transactions.transaction_coordinator import TransactionCoordinator
from simulation.swarm.scenarios import Fault, Scenario, draw

Patch = pytest.MonkeyPatch
R = TypeVar("R", bound=AnyResponse)


@dataclass(frozen=True)
class PlantedTransactions:
    """A bug: its patch, the anomalies that reveal it, and a seed that finds it.

    ``faults`` replace the drawn faults of the day. ``transaction_version`` sets its
    feature level. ``writes_only`` removes its copiers and group members.
    """

    plant: Callable[[Patch], None]
    kinds: frozenset[str]
    seed: int = 0
    faults: tuple[Fault, ...] | None = None
    transaction_version: int | None = None
    writes_only: bool = False

    def scenario(self) -> Scenario:
        """Return the day that reveals the bug."""
        scenario = draw(self.seed, transactions=True)
        plan = scenario.transactions
        assert plan is not None
        if self.transaction_version is not None:
            levels = {**plan.features, TRANSACTION_VERSION: self.transaction_version}
            plan = replace(plan, features=levels)
        if self.writes_only:
            plan = replace(plan, copiers=())
            scenario = replace(scenario, members=0)
        scenario = replace(scenario, transactions=plan)
        if self.faults is None:
            return scenario
        return replace(
            scenario, brokers=3, replicas=3, min_insync=1, faults=self.faults
        )


def fault(number: int, kind: str, broker: int, at_ms: int, lasts_ms: int = 0) -> Fault:
    """Return a fault of a day made for a bug."""
    return Fault(
        number=number,
        at_ms=at_ms,
        kind=kind,
        broker=broker,
        lasts_ms=lasts_ms,
        chance=number,
    )


# Repeated kills, one broker after the other.
_KILLS: Final = tuple(
    fault(number, "kill", number % 3, 1_000 + 700 * number, 400) for number in range(8)
)
_DEATHS: Final = tuple(
    fault(number, "transactor", 0, 2_000 + 300 * number) for number in range(24)
)
_ONE_KILL: Final = (fault(0, "kill", 0, 4_000, 400),)
# Two power failures in succession: requests wait for the first when the second occurs.
_POWER_FAILURES: Final = tuple(
    fault(number, "power", number % 3, 1_000 + 500 * number, 800)
    for number in range(16)
)
_USURPERS: Final = tuple(
    fault(number, "usurp", 0, 1_000 + 250 * number) for number in range(16)
)


def hide_aborted_transactions(patch: Patch) -> None:
    """A Fetch response does not list aborted transactions."""
    patch.setattr(reading, "aborted_between", lambda *_: [])


def read_to_the_high_watermark(patch: Patch) -> None:
    """Readers of committed records receive records of open transactions."""
    stable = property(lambda self: self.high_watermark)
    patch.setattr(Partition, "last_stable_offset", stable)


def read_beyond_the_high_watermark(patch: Patch) -> None:
    """The last stable offset ignores the high watermark."""
    stable = property(lambda self: self.log.stable_below(self.log.log_end_offset))
    patch.setattr(Partition, "last_stable_offset", stable)


def begin_too_early(patch: Patch) -> None:
    """A transaction also holds back the record before it."""
    begin = Producers._begin

    def early(
        self: Producers, producer_id: int, state: ProducerState, offset: int
    ) -> None:
        begin(self, producer_id, state, max(offset - 1, 0))

    patch.setattr(Producers, "_begin", early)


def forget_transactions_on_a_fail_over(patch: Patch) -> None:
    """A follower ignores the transactional attribute of batches."""
    replay = Producers.replay

    def plain(
        self: Producers, header: BatchHeader, marker: Marker | None = None
    ) -> AbortedTransaction | None:
        if not header.attributes & CONTROL:
            attributes = header.attributes & ~TRANSACTIONAL
            header = header._replace(attributes=attributes)
        return replay(self, header, marker)

    patch.setattr(Producers, "replay", plain)


def abort_on_followers(patch: Patch) -> None:
    """A follower treats commit markers as abort markers."""
    append, follow = Log.append_as_follower, Log._follow

    def aborting(self: Log, header: BatchHeader, marker: Marker | None) -> None:
        follow(self, header, marker and marker._replace(is_abort=True))

    def following(self: Log, records: Buffer, now_ms: int) -> Appended | None:
        with Patch.context() as within:
            within.setattr(Log, "_follow", aborting)
            return append(self, records, now_ms)

    patch.setattr(Log, "append_as_follower", following)


def coordinate_once(patch: Patch) -> None:
    """A transaction partition that has moved has no coordinator."""
    elect = TransactionCoordinator.elect

    def first(self: TransactionCoordinator, partition: int, epoch: int) -> None:
        if epoch == 0:
            elect(self, partition, epoch)

    patch.setattr(TransactionCoordinator, "elect", first)


def wait_for_ever(patch: Patch) -> None:
    """A producer waits for its coordinator forever, even after a power failure."""

    async def ask(self: Transactions, request: AnyRequest[R]) -> R:
        address = self._coordinator or await self._find(self._id, 1)
        self._coordinator = address
        newest = self.newest_versions
        return await self._client.call(address, request, math.inf, newest=newest)

    patch.setattr(Transactions, "_call", ask)


def stop_before_markers(patch: Patch) -> None:
    """A consumer's position does not pass markers after the last record."""
    take = PartitionState.take

    def records_only(self: PartitionState, count: int) -> list[ConsumerRecord]:
        before = self.position
        taken = take(self, count)
        self.position = taken[-1].offset + 1 if taken else before
        return taken

    patch.setattr(PartitionState, "take", records_only)


def ignore_epochs(patch: Patch) -> None:
    """A coordinator serves fenced producers of the transactional id."""
    end = Transaction.end_and_raise_epoch

    def any_epoch(
        self: Transaction,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        new_id: int | None,
        now_ms: int,
    ) -> TransactionValue | None:
        return end(self, self.value.producer, is_commit, new_id, now_ms)

    patch.setattr(Transaction, "_check_producer", lambda self, producer: None)
    patch.setattr(Transaction, "end_and_raise_epoch", any_epoch)


def never_time_out(patch: Patch) -> None:
    """A coordinator leaves transactions open forever."""
    patch.setattr(Transaction, "is_timed_out", lambda self, now_ms: False)


def count_offsets_at_once(patch: Patch) -> None:
    """Offsets of a transaction are committed at once, whatever its outcome."""
    commit = Commits._commit

    def plainly(
        self: Commits,
        group: AnyGroup,
        outcomes: dict[TopicPartition, ErrorCode],
        offsets: dict[TopicPartition, OffsetCommit],
        transaction: InTransaction | None,
    ) -> Waiting[Outcomes]:
        return commit(self, group, outcomes, offsets, None)

    patch.setattr(Commits, "_commit", plainly)


def drop_offsets(patch: Patch) -> None:
    """A commit drops the offsets of its transaction."""
    completing = Commits.completing

    def dropping(
        self: Commits, partition: int, producer_id: int, *, is_commit: bool
    ) -> Iterator[None]:
        return completing(self, partition, producer_id, is_commit=False)

    patch.setattr(Commits, "completing", dropping)


PLANTED_TRANSACTIONS = {
    "aborted transactions hidden": PlantedTransactions(
        hide_aborted_transactions, frozenset({"aborted-read", "processed-twice"})
    ),
    "read to the high watermark": PlantedTransactions(
        read_to_the_high_watermark,
        frozenset({"aborted-read", "precommitted-read", "stable-offset-passed"}),
    ),
    "read beyond the high watermark": PlantedTransactions(
        read_beyond_the_high_watermark, frozenset({"stable-offset-outside"})
    ),
    "begin too early": PlantedTransactions(
        begin_too_early, frozenset({"stable-offset-back"})
    ),
    "transactions forgotten on fail-over": PlantedTransactions(
        forget_transactions_on_a_fail_over,
        frozenset({"aborted-read"}),
        faults=_KILLS,
    ),
    "followers abort": PlantedTransactions(
        abort_on_followers,
        frozenset({"torn-transaction", "lost-transaction"}),
        seed=9,
        faults=_ONE_KILL,
        writes_only=True,
    ),
    "coordinated once": PlantedTransactions(
        coordinate_once,
        frozenset({"not-committable"}),
        faults=_KILLS,
        writes_only=True,
    ),
    "waits for ever": PlantedTransactions(
        wait_for_ever,
        frozenset({"transactors-stuck"}),
        seed=8,
        faults=_POWER_FAILURES,
        writes_only=True,
    ),
    "stops before markers": PlantedTransactions(
        stop_before_markers, frozenset({"unreadable-transactions"})
    ),
    "epochs ignored": PlantedTransactions(
        ignore_epochs,
        frozenset({"zombie-commit"}),
        faults=_USURPERS,
        transaction_version=0,
    ),
    "no time-outs": PlantedTransactions(
        never_time_out, frozenset({"transactions-stuck"})
    ),
    "offsets count at once": PlantedTransactions(
        count_offsets_at_once, frozenset({"skipped-input"}), seed=24, faults=_DEATHS
    ),
    "offsets dropped": PlantedTransactions(drop_offsets, frozenset({"copiers-stuck"})),
}
