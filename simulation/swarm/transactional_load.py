"""Transactions of a bad day: producers during the faults, and demands after them.

Each transactional id has one producer at a time, unless a fault starts the next one
early. After the faults the copiers' group must reach the end of its topic, and a new
producer must be able to commit in each partition. Time-outs must end abandoned
transactions, and all committed records must be readable.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import trio

from broker.protocol.topic_partition import TopicPartition
from simulation.clients.client_context import ClientContext
from simulation.clients.consuming import RecordingConsumer
from simulation.clients.transacting import RecordingTransactor, TransactorPlan
from simulation.histories import FinalLog
from simulation.swarm.scenarios import TransactionsPlan

OUTPUT: Final = "out"
COPIERS: Final = "copiers"
_CONSUMER: Final[Mapping[str, Any]] = {"group_protocol": "consumer"}
_LOOK_S: Final = 0.5
_LAST: Final = TransactorPlan(
    transactional_id="last",
    timeout_ms=2_000,
    aborts=0.0,
    records=1,
    pause_ms=50,
    returns=False,
)
_ABANDONED: Final = replace(_LAST, transactional_id="abandoned")


class TransactionalLoad:
    """The transactions of one day.

    ``context`` and ``name`` return those of a new client; ``inputs`` are the partitions
    of the copied topic.
    """

    def __init__(
        self,
        plan: TransactionsPlan,
        inputs: Sequence[TopicPartition],
        rng: random.Random,
        context: Callable[[], ClientContext],
        name: Callable[[], str],
    ) -> None:
        self._plan = plan
        self._inputs = inputs
        self._rng = rng
        self._context = context
        self._name = name
        self._scopes: list[trio.CancelScope] = []
        # Ids with a killed producer.
        self._killed: set[str] = set()
        self._copying: list[RecordingTransactor] = []
        self._is_hurried = False
        # Set when the next producer of an id may begin.
        self._turns: dict[str, trio.Event] = {}
        self.writers_left = 0
        self.outputs = [
            TopicPartition(OUTPUT, number) for number in range(plan.partitions)
        ]
        self.protocol = _CONSUMER if plan.consumer_groups else {}

    # ---- during faults ----------------------------------------------------------

    def begin(self, nursery: trio.Nursery, until_s: float) -> None:
        """Start to write until an instant, and to copy and read until cancelled."""
        for plan in self._plan.writers:
            self.writers_left += 1
            nursery.start_soon(self._write, plan, until_s)
        for plan in self._plan.copiers:
            nursery.start_soon(self._copy, plan)
        nursery.start_soon(self._reader().read, self.outputs)

    async def _write(self, plan: TransactorPlan, until_s: float) -> None:
        def is_over() -> bool:
            is_dead = not plan.returns and plan.transactional_id in self._killed
            return is_dead or trio.current_time() >= until_s

        async def write() -> None:
            await self._transactor(plan).write(until_s)

        await self._one_by_one(plan, write, is_over)
        self.writers_left -= 1

    async def _copy(self, plan: TransactorPlan) -> None:
        async def copy() -> None:
            topic = self._inputs[0].topic
            copier = self._transactor(plan.hurried() if self._is_hurried else plan)
            self._copying.append(copier)
            await copier.copy(COPIERS, topic, self.protocol)

        await self._one_by_one(plan, copy, lambda: False)

    async def _one_by_one(
        self,
        plan: TransactorPlan,
        live: Callable[[], Awaitable[None]],
        is_over: Callable[[], bool],
    ) -> None:
        """Run the producers of an id, each after the end of its predecessor."""
        async with trio.open_nursery() as nursery:
            while not is_over():
                turn = self._turns[plan.transactional_id] = trio.Event()
                nursery.start_soon(self._live, plan, live, turn)
                await turn.wait()
                await trio.sleep(self._rng.uniform(0.05, 0.5))

    async def _live(
        self,
        plan: TransactorPlan,
        live: Callable[[], Awaitable[None]],
        turn: trio.Event,
    ) -> None:
        with trio.CancelScope() as scope:
            self._scopes.append(scope)
            await live()
        self._scopes.remove(scope)
        if scope.cancelled_caught:
            self._killed.add(plan.transactional_id)
        turn.set()

    def kill(self, chance: int) -> None:
        """Kill one of the producers."""
        if self._scopes:
            self._scopes[chance % len(self._scopes)].cancel()

    def usurp(self, chance: int) -> None:
        """Start the next producer of an id while the last one lives."""
        turns = [each for each in self._turns.values() if not each.is_set()]
        if turns:
            turns[chance % len(turns)].set()

    # ---- after faults -----------------------------------------------------------

    def hurry(self) -> None:
        """Copy in large transactions, without pauses and aborts, from now on."""
        self._is_hurried = True
        for each in self._copying:
            each.plan = each.plan.hurried()

    async def abandon(self) -> None:
        """Leave a transaction open under an id without other producers."""
        await self._transactor(_ABANDONED).abandon()

    async def commit_everywhere(self) -> None:
        """Commit a record in each partition, with as many attempts as needed."""
        committed = False
        while not committed:
            last = self._transactor(_LAST)
            await last.write_everywhere()
            committed = last.commits > 0
            await trio.sleep(_LOOK_S)

    async def copy(self, ends: Mapping[TopicPartition, int], before: int) -> int:
        """Wait until the copiers' group has fewer than ``before`` records to copy.

        Return their number: records below ``ends`` that the group has not committed.
        """
        left = before if self._plan.copiers else 0
        while left and left >= before:
            await trio.sleep(_LOOK_S)
            found = await self.committed()
            done = {key: max(0, found.get(key, 0)) for key in ends}
            left = sum(max(0, end - done[key]) for key, end in ends.items())
        return left

    async def committed(self) -> Mapping[TopicPartition, int]:
        """Return and record the offsets that the copiers' group has committed."""
        auditor = self._reader()
        noted = auditor.context.history.committed
        before = len(noted)
        answered = False
        while not answered:
            answered = await auditor.audit(COPIERS, self._inputs)
        return {each.partition: each.offset for each in noted[before:]}

    async def read_all(self, ends: Mapping[TopicPartition, int]) -> None:
        """Read the final logs, committed records and all records."""
        history = self._context().history
        for committed_only, finals in (
            (True, history.committed_finals),
            (False, history.finals),
        ):
            reader = self._reader(committed_only=committed_only)
            await reader.read_to(ends)
            for key in self.outputs:
                records = [
                    (read.offset, read.value)
                    for read in history.reads
                    if read.consumer == reader.name and read.partition == key
                ]
                final = FinalLog(
                    partition=key, log_start_offset=0, records=tuple(records)
                )
                finals.append(final)

    # ---- clients ----------------------------------------------------------------

    def _transactor(self, plan: TransactorPlan) -> RecordingTransactor:
        return RecordingTransactor(
            self._context(),
            self._name(),
            plan,
            self.outputs,
            random.Random(self._rng.getrandbits(64)),
            has_epochs=self._plan.has_epochs,
        )

    def _reader(self, *, committed_only: bool = True) -> RecordingConsumer:
        return RecordingConsumer(
            self._context(),
            self._name(),
            random.Random(self._rng.getrandbits(64)),
            committed_only=committed_only,
        )
