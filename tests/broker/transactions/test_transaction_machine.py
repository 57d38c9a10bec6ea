"""The coordinator compared with a naive model, under any order of requests and faults.

The model has Kafka's rules in their simplest form: a dictionary with the state of each
id, and a second one with the logged state, which a restart restores. Every response is
predicted. The markers of a transaction have one outcome and go to exactly the added
partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from broker.protocol.errors import ErrorCode
from broker.transactions.transaction import ProducerIdAndEpoch
from broker.transactions.transaction_records import transaction_record
from broker.transactions.transaction_state import PREPARED, TransactionState
from tests.broker.transactions.transaction_world import (
    TIMEOUT_MS,
    TransactionWorld,
    marked,
)

NAMES = ("x", "y")
NAME = st.sampled_from(NAMES)
PARTITION = st.integers(0, 3)
EXHAUSTED, LAST = 32_766, 32_767
NONE = ErrorCode.none
FENCED, CONCURRENT = ErrorCode.producer_fenced, ErrorCode.concurrent_transactions
INVALID, MAPPING = ErrorCode.invalid_txn_state, ErrorCode.invalid_producer_id_mapping
UNAVAILABLE = ErrorCode.coordinator_not_available


@dataclass(frozen=True)
class Id:
    """Expected state of a transactional id."""

    producer_id: int
    epoch: int
    doing: str = "idle"
    is_commit: bool = False
    added: frozenset[int] = frozenset()
    # All markers are written, but the log does not record it yet.
    is_marked: bool = False
    # The previous epoch, if the present producer itself requested its successor.
    before: int = -1
    # Producer id before the last write, and the one that follows the markers.
    before_id: int = -1
    next_id: int = -1
    # The epoch was raised for fencing, and the log refused the write.
    raised: bool = False


class TransactionMachine(RuleBasedStateMachine):
    """Two ids, all their producers, and a log that may refuse writes."""

    @initialize(
        epoch=st.sampled_from([0, 32_763, 32_765]), level=st.sampled_from([0, 1, 2, 2])
    )
    def begin(self, epoch: int, level: int) -> None:
        self.world = TransactionWorld(transaction_version=level)
        self.model: dict[str, Id] = {}
        self.logged: dict[str, Id] = {}
        # All producer ids and epochs that were returned to producers.
        self.given: dict[str, list[ProducerIdAndEpoch]] = {name: [] for name in NAMES}
        self.writes = True
        if epoch:
            # Start with an id near its last epoch.
            assert isinstance(self.world.init("x"), ProducerIdAndEpoch)
            value = self.world.coordinator.describe("x").value
            record = transaction_record("x", replace(value, epoch=epoch), 0)
            partition = self.world.coordinator.partition_for("x")
            self.world.log.partitions[partition].append(record)
            self.world.start()
            self.model["x"] = self.logged["x"] = Id(value.producer_id, epoch)
            self.given["x"].append(ProducerIdAndEpoch(value.producer_id, epoch))

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.coordinator.check()

    # ---- the model ----

    def write(self, name: str, after: Id) -> ErrorCode:
        """Return the outcome of a write; apply it to the model if it succeeds."""
        if not self.writes:
            return UNAVAILABLE
        before_id = self.model.get(name, after).producer_id
        self.model[name] = replace(after, before_id=before_id)
        # A restart loses changes that the log does not hold.
        keeps_ids = self.world.transaction_version >= 1
        self.logged[name] = replace(
            after,
            before=-1,
            before_id=before_id if keeps_ids else -1,
            next_id=after.next_id if keeps_ids else -1,
            raised=False,
            is_marked=False,
        )
        return NONE

    def fence(self, name: str, fresh: int | None = None) -> ErrorCode:
        """Abort the open transaction under a higher epoch."""
        now = self.model[name]
        is_last = now.epoch >= EXHAUSTED
        if self.world.transaction_version == 2 and not (is_last and fresh is None):
            return self.write(name, self.prepared(now, False, fresh))
        epoch = now.epoch if now.raised else min(now.epoch + 1, LAST)
        raised = replace(now, epoch=epoch, before=-1, raised=True)
        self.model[name] = raised
        return self.write(
            name,
            replace(raised, doing="ending", is_commit=False, raised=False),
        )

    def prepared(self, now: Id, is_commit: bool, fresh: int | None) -> Id:
        """Return the state of an id after an outcome in the second protocol."""
        return replace(
            now,
            doing="ending",
            is_commit=is_commit,
            epoch=min(now.epoch + 1, LAST),
            before=now.epoch,
            next_id=fresh if fresh is not None and now.epoch >= EXHAUSTED else -1,
            raised=False,
            added=now.added if now.doing == "open" else frozenset(),
        )

    def expected_init(
        self, name: str, known: ProducerIdAndEpoch | None, fresh: int
    ) -> Any:
        now = self.model.get(name)
        if now is None:
            # If the log refuses, the id is only in memory, without an epoch.
            code = self.write(name, Id(fresh, 0))
            return ProducerIdAndEpoch(fresh, 0) if code is NONE else code
        if now.doing == "ending":
            return CONCURRENT
        if known is not None:
            was_last = known.producer_id == now.before_id and known.epoch >= EXHAUSTED
            if known.producer_id != now.producer_id and not was_last:
                return FENCED
        if now.doing == "open":
            code = self.fence(name, fresh)
            return CONCURRENT if code is NONE else code
        if known is not None and known.epoch != now.epoch:
            if known.epoch != now.before:
                return FENCED
            after = now
        elif now.epoch >= EXHAUSTED:
            after = Id(fresh, 0, before=-1 if known is None else now.epoch)
        else:
            before = -1 if known is None else now.epoch
            after = Id(now.producer_id, now.epoch + 1, before=before)
        after = replace(after, doing="idle", added=frozenset())
        code = self.write(name, after)
        return (
            ProducerIdAndEpoch(after.producer_id, after.epoch) if code is NONE else code
        )

    def refusal(self, name: str, producer: ProducerIdAndEpoch) -> ErrorCode:
        now = self.model.get(name)
        if now is None or producer.producer_id != now.producer_id:
            return MAPPING
        return NONE if producer.epoch == now.epoch else FENCED

    def one_of(self, name: str, data: st.DataObject) -> ProducerIdAndEpoch:
        """Draw a producer of an id, most often the last one."""
        given = self.given[name]
        return data.draw(st.sampled_from([*given[-3:], *given[-1:] * 5]))

    # ---- requests ----

    @rule(name=NAME, data=st.data())
    def init(self, name: str, data: st.DataObject) -> None:
        if name not in self.model and not self.writes:
            # The model has no state for an id that was never written.
            return
        known = data.draw(st.sampled_from([None, None, *self.given[name][-3:]]))
        fresh = self.world.last_id + 1
        expected = self.expected_init(name, known, fresh)
        found = self.world.init(name, known)
        assert found == expected, (found, expected, known, self.model.get(name))
        if isinstance(found, ProducerIdAndEpoch):
            self.given[name].append(found)

    @rule(name=NAME, partitions=st.sets(PARTITION, min_size=1), data=st.data())
    def add(self, name: str, partitions: set[int], data: st.DataObject) -> None:
        if not self.given[name]:
            return
        producer = self.one_of(name, data)
        expected = self.refusal(name, producer)
        now = self.model.get(name)
        if now is not None and now.doing == "ending":
            expected = CONCURRENT
        elif expected is NONE and now is not None:
            added = frozenset(partitions)
            if now.doing == "open":
                added |= now.added
            if now.doing != "open" or added != now.added:
                after = replace(now, doing="open", added=added)
                expected = self.write(name, after)
        assert self.world.add(producer, *partitions, name=name) is expected

    @rule(name=NAME, is_commit=st.booleans(), data=st.data())
    def end(self, name: str, is_commit: bool, data: st.DataObject) -> None:
        if not self.given[name]:
            return
        producer = self.one_of(name, data)
        expected = self.refusal(name, producer)
        now = self.model.get(name)
        if expected is NONE and now is not None:
            same = now.is_commit == is_commit
            if now.doing == "open":
                after = replace(now, doing="ending", is_commit=is_commit)
                expected = self.write(name, after)
            elif now.doing == "ending":
                expected = CONCURRENT
            elif now.doing == "ended":
                expected = NONE if same else INVALID
            else:
                expected = INVALID
        assert self.world.end(producer, is_commit, name=name) is expected

    @rule(name=NAME, is_commit=st.booleans(), data=st.data())
    def end_5(self, name: str, is_commit: bool, data: st.DataObject) -> None:
        if not self.given[name]:
            return
        producer = self.one_of(name, data)
        fresh = self.world.last_id + 1
        expected = self.expected_end_5(name, producer, is_commit, fresh)
        found = self.world.end_5(producer, is_commit, name=name)
        assert found == expected, (found, expected, producer, self.model.get(name))
        if isinstance(found, ProducerIdAndEpoch):
            self.given[name].append(found)

    def expected_end_5(
        self, name: str, producer: ProducerIdAndEpoch, is_commit: bool, fresh: int
    ) -> Any:
        now = self.model.get(name)
        if now is None:
            return MAPPING
        if now.doing == "ending":
            return CONCURRENT
        raised_once = (now.producer_id, now.epoch - 1)
        was_last = now.epoch == 0 and producer == (now.before_id, EXHAUSTED)
        if now.doing == "ended" and (producer == raised_once or was_last):
            if now.is_commit != is_commit:
                return INVALID
            return ProducerIdAndEpoch(now.producer_id, now.epoch)
        refusal = self.refusal(name, producer)
        if refusal is not NONE:
            return refusal
        if now.doing != "open" and is_commit:
            return INVALID
        is_last = now.epoch >= EXHAUSTED
        after = self.prepared(now, is_commit, fresh)
        code = self.write(name, after)
        if code is not NONE:
            return code
        if not after.added:
            # Without partitions there is no marker to wait for.
            self.write(name, self.ended(name))
        if is_last:
            return ProducerIdAndEpoch(fresh, 0)
        return ProducerIdAndEpoch(now.producer_id, now.epoch + 1)

    def ended(self, name: str) -> Id:
        now = replace(self.model[name], doing="ended", is_marked=False)
        if now.next_id >= 0:
            now = replace(now, producer_id=now.next_id, epoch=0, next_id=-1)
        return now

    # ---- events ----

    @rule(error=st.sampled_from([NONE, NONE, ErrorCode.not_leader_or_follower]))
    def answer_markers(self, error: ErrorCode) -> None:
        self.world.advance(50)
        self.complete()
        by_name: dict[str, list[Any]] = {}
        for row in self.world.answer(error):
            by_name.setdefault(row.ending.transaction.name, []).append(row)
        ending = {it for it, now in self.model.items() if now.doing == "ending"}
        # Markers are sent after a restart, too.
        assert {it for it in ending if not self.model[it].is_marked} == set(by_name)
        for name, rows in by_name.items():
            now = self.model[name]
            assert set(marked(rows).values()) == {now.is_commit}
            assert set(marked(rows)) == now.added
            assert rows[0].ending.producer == (now.producer_id, now.epoch)
            if error is NONE:
                self.model[name] = replace(now, is_marked=True)
        self.complete()

    def complete(self) -> None:
        for name, now in list(self.model.items()):
            if now.is_marked:
                self.write(name, self.ended(name))

    @rule()
    def time_out(self) -> None:
        self.world.advance(TIMEOUT_MS + 10_001)
        self.complete()
        for name, now in list(self.model.items()):
            if now.doing == "open":
                self.fence(name)

    @rule(writes=st.sampled_from([True, True, False]))
    def let_the_log_write(self, writes: bool) -> None:
        self.writes = writes
        self.world.log.fail_with = NONE if writes else ErrorCode.not_enough_replicas

    @rule(level=st.integers(0, 2))
    def finalize(self, level: int) -> None:
        self.world.transaction_version = level

    @precondition(lambda self: self.writes)
    @rule()
    def restart(self) -> None:
        self.world.start()
        self.model = dict(self.logged)

    @invariant()
    def states_agree(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.coordinator.check()
        states = {
            "idle": {TransactionState.EMPTY},
            "open": {TransactionState.ONGOING},
            "ending": PREPARED,
            "ended": {
                TransactionState.COMPLETE_COMMIT,
                TransactionState.COMPLETE_ABORT,
            },
        }
        for name, now in self.model.items():
            value = self.world.coordinator.describe(name).value
            assert value.state in states[now.doing], (name, now, value)
            assert (value.producer_id, value.epoch) == (now.producer_id, now.epoch)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None
)
