"""One scenario simulated: safety during faults, then progress after all faults end.

TigerBeetle's VOPR has the same two phases. First faults and load run together; all
promises made in that time must hold. Then the cluster is healed. Within bounds all
replicas must be in sync, every partition writable, the group at the end, and the logs
readable and equal. A violation is an `Anomaly`; so are a crashed broker and a failure
that a broker should have contained. The first demand for progress that is not met ends
the day. Later demands would fail for the same reason, and records of an unreadable log
would be reported as lost.
"""

from __future__ import annotations

import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

import trio

from broker.cluster.cluster_topics import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from broker.cluster.partition import Partition
from broker.config import TRANSACTION_STATE_LOG_NUM_PARTITIONS
from broker.coordination.features import NO_FEATURES, FinalizedFeatures
from broker.protocol.topic_partition import TopicPartition
from simulation.anomalies import Anomaly
from simulation.checkers import check
from simulation.clients.client_context import ClientContext
from simulation.clients.consuming import RecordingConsumer
from simulation.clients.producing import ProducerPlan, RecordingProducer
from simulation.cluster import LATENCY_NS, Cluster, Control, WallClock
from simulation.control.scripted_controller import ScriptedController
from simulation.control.zookeeper_control import ZooKeeperControl
from simulation.histories import FinalLog, History
from simulation.swarm.nemesis import Nemesis
from simulation.swarm.replica_agreement import differences
from simulation.swarm.scenarios import Scenario, TransactionsPlan
from simulation.swarm.transactional_load import OUTPUT, TransactionalLoad
from simulation.swarm.watching import Watcher
from simulation.virtual_time.determinism import VirtualClock, run_virtual
from simulation.virtual_time.network_faults import HostNetwork

TOPIC: Final = "t"
GROUP: Final = "g"
# Longest time for any demand on a cluster without faults.
PATIENCE_S: Final = 60.0
_SETTLING_S: Final = 0.5
_LOOK_S: Final = 0.05
_Describe = Callable[[], Sequence[str]]
_FINAL_PLAN: Final = ProducerPlan(acks=-1, idempotent=True, linger_ms=0, pause_ms=20)
_FINAL_S: Final = 0.4


@dataclass(slots=True)
class Outcome:
    """Observations of a scenario, and the anomalies among them."""

    history: History = field(default_factory=History)
    anomalies: list[Anomaly] = field(default_factory=list)


def live_through(scenario: Scenario) -> Outcome:
    """Run a scenario; equal scenarios have outcomes equal to the byte."""
    outcome = Outcome()

    async def main(clock: VirtualClock) -> None:
        await BadDay(scenario, clock, outcome).run()

    try:
        run_virtual(main, seed=scenario.seed)
    except Exception as error:  # whatever it is, it is what this seed has found
        outcome.anomalies.append(Anomaly("crash", repr(_innermost(error))))
    outcome.anomalies += check(outcome.history)
    return outcome


class BadDay:
    """The parts of one run."""

    def __init__(
        self, scenario: Scenario, clock: VirtualClock, outcome: Outcome
    ) -> None:
        self._scenario = scenario
        self._clock = clock
        self._outcome = outcome
        self._rng = rng = random.Random(scenario.seed)
        self._network = HostNetwork(
            now_ns=clock.now_ns, rng=self._another_rng(), latency_ns=LATENCY_NS
        )
        self._control = self._controlled_by(scenario)
        self._cluster = Cluster(
            clock,
            self._another_rng(),
            count=scenario.brokers,
            control=self._control,
            network=self._network,
            settings=_settings(scenario),
        )
        skew_ms = scenario.clock_skew_ms
        for each in self._cluster.brokers:
            ahead_ms = rng.randint(-skew_ms, skew_ms)
            each.wall_clock = WallClock(
                ahead_ms=ahead_ms, drift_ppm=rng.randint(-500, 500)
            )
        self._partitions = [
            TopicPartition(TOPIC, index) for index in range(scenario.partitions)
        ]
        self._clients: dict[str, list[trio.CancelScope]] = {
            "producer": [],
            "member": [],
        }
        self._producers_left = 0
        self._names = 0
        self._is_over = False
        self._groups = [GROUP]
        self._transactions: TransactionalLoad | None = None
        if scenario.transactions is not None:
            self._transactions = TransactionalLoad(
                scenario.transactions,
                self._partitions,
                self._another_rng(),
                self._context,
                self._name,
            )

    def _controlled_by(self, scenario: Scenario) -> Control:
        if scenario.zookeeper:
            return ZooKeeperControl(
                self._network,
                self._clock,
                self._another_rng(),
                session_timeout_ms=scenario.session_timeout_ms,
            )
        return ScriptedController(
            self._network,
            self._another_rng(),
            session_timeout_s=scenario.session_timeout_ms / 1000,
            repeats=scenario.repeats,
            features=_features(scenario),
        )

    async def run(self) -> None:
        """Simulate the day, and judge everything except the history."""
        async with trio.open_nursery() as nursery:
            self._day = nursery.cancel_scope
            await nursery.start(self._cluster.run)
            watcher = Watcher(self._cluster, self._outcome.history)
            nursery.start_soon(watcher.run)
            await self._begin()
            await self._faults()
            await self._progress()
            self._day.cancel()

    # ---- the day ------------------------------------------------------------------

    async def _begin(self) -> None:
        """Start the brokers and create the topics."""
        for each in self._cluster.brokers:
            await self._cluster.start(each.id)
        brokers = range(self._scenario.brokers)
        live = self._control.live
        await self._wait_until("no-start", lambda: live() == {*brokers})
        minimum = {"min.insync.replicas": str(self._scenario.min_insync)}
        await self._create(TOPIC, self._scenario.partitions, minimum)
        compacted = {"cleanup.policy": "compact", **minimum}
        await self._create(
            GROUP_METADATA_TOPIC, self._scenario.offsets_partitions, compacted
        )
        plan = self._scenario.transactions
        if plan is not None:
            await self._create(OUTPUT, plan.partitions, minimum)
            await self._create(
                TRANSACTION_STATE_TOPIC, plan.state_partitions, compacted
            )
        await trio.sleep(_SETTLING_S)

    async def _create(
        self, name: str, partitions: int, configs: dict[str, str]
    ) -> None:
        brokers, replicas = self._scenario.brokers, self._scenario.replicas
        if self._scenario.flushes:
            configs = {**configs, "flush.messages": "1"}
        assignment = [
            tuple((first + step) % brokers for step in range(replicas))
            for first in range(partitions)
        ]
        await self._control.create(name, assignment, configs)

    async def _faults(self) -> None:
        """Run load and faults concurrently, until both have ended."""
        scenario = self._scenario
        hosts = [each.host.name for each in self._cluster.brokers]
        nemesis = Nemesis(
            scenario,
            self._cluster,
            self._control,
            [*hosts, self._control.host, "clients"],
            self._replace,
        )
        self._until_s = trio.current_time() + scenario.lasts_ms / 1000
        async with trio.open_nursery() as self._load:
            for plan in scenario.producers:
                self._load.start_soon(self._produce, plan)
            for _ in range(scenario.members):
                self._load.start_soon(self._be_member)
            for _ in range(scenario.readers):
                self._load.start_soon(self._read)
            self._load.start_soon(self._keep_offsets)
            if self._transactions is not None:
                self._transactions.begin(self._load, self._until_s)
            await nemesis.run()
            self._is_over = True
            if self._transactions is not None:
                self._transactions.hurry()
            async with self._patience("no-restart"):
                await nemesis.bring_back()
            await self._wait_until("producers-stuck", lambda: not self._producers_left)
            await self._all_in_sync()
            await self._audit()
            await self._check_writable()
            await self._last_transactions()
            await self._group_reads_all()
            await self._audit()
            self._load.cancel_scope.cancel()

    # ---- clients --------------------------------------------------------------------

    async def _produce(self, plan: ProducerPlan) -> None:
        """Run a producer, and replace it when it is killed."""
        self._producers_left += 1
        while trio.current_time() < self._until_s:
            producer = RecordingProducer(
                self._context(),
                self._name(),
                plan,
                TOPIC,
                len(self._partitions),
                self._another_rng(),
            )
            await self._killable("producer", partial(producer.run, self._until_s))
        self._producers_left -= 1

    async def _be_member(self) -> None:
        """Run a member of the group, and replace it when it is killed."""
        while True:
            consumer = self._consumer()
            await self._killable("member", partial(consumer.be_member, GROUP, TOPIC))

    async def _read(self) -> None:
        await self._consumer().read(self._partitions)

    async def _keep_offsets(self) -> None:
        """Occasionally commit for a new group that is not used again."""
        while not self._is_over:
            group = self._name()
            self._groups.append(group)
            offsets = dict.fromkeys(self._partitions, len(self._groups))
            await self._consumer().keep(group, offsets)
            await trio.sleep(self._rng.uniform(0.5, 3))

    async def _audit(self) -> None:
        """Query the committed offsets of every group."""
        async with self._patience("no-offsets"):
            for group in self._groups:
                answered = False
                while not answered:
                    answered = await self._consumer().audit(group, self._partitions)

    async def _killable(self, kind: str, client: Callable[[], Awaitable[None]]) -> None:
        with trio.CancelScope() as scope:
            self._clients[kind].append(scope)
            await client()
        self._clients[kind].remove(scope)

    def _replace(self, kind: str, chance: int) -> None:
        if self._transactions is not None and kind == "transactor":
            self._transactions.kill(chance)
        if self._transactions is not None and kind == "usurp":
            self._transactions.usurp(chance)
        scopes = self._clients.get(kind)
        if scopes:
            scopes[chance % len(scopes)].cancel()

    def _consumer(self) -> RecordingConsumer:
        protocol = {} if self._transactions is None else self._transactions.protocol
        return RecordingConsumer(
            self._context(), self._name(), self._another_rng(), protocol=protocol
        )

    def _context(self) -> ClientContext:
        host = self._network.host("clients")
        history = self._outcome.history
        return ClientContext(host, self._cluster.bootstrap, self._clock, history)

    def _name(self) -> str:
        self._names += 1
        return f"client-{self._names}"

    def _another_rng(self) -> random.Random:
        return random.Random(self._rng.getrandbits(64))

    # ---- progress -------------------------------------------------------------------

    async def _all_in_sync(self) -> None:
        def is_so() -> bool:
            return all(
                set(state.isr) == set(state.replicas) and state.leader >= 0
                for state in self._control.standings().values()
            )

        await self._wait_until("not-in-sync", is_so)

    async def _check_writable(self) -> None:
        """Demand that every partition accepts a record of a new producer."""
        sends = self._outcome.history.sends
        before = len(sends)
        self._until_s = trio.current_time() + _FINAL_S
        self._load.start_soon(self._produce, _FINAL_PLAN)
        await trio.sleep(_FINAL_S)
        await self._wait_until("producers-stuck", lambda: not self._producers_left)
        refused = [
            send
            for send in sends[before:]
            if send.outcome != "ok" and not send.transaction
        ]
        if refused:
            await self._give_up("not-writable", *map(str, refused))

    async def _last_transactions(self) -> None:
        """Demand that transactions commit, and that copiers reach the end."""
        load = self._transactions
        if load is None:
            return
        await self._wait_until("transactors-stuck", lambda: not load.writers_left)
        async with self._patience("not-committable"):
            await load.commit_everywhere()
            await load.abandon()
        ends = await self._ends(self._partitions)
        left = sum(ends.values())
        while left:
            # Aborts repeat records, and a consumer that seeks waits for its long poll,
            # as in Kafka. Both slow a backlog down; only a standstill breaks a promise.
            async with self._patience("copiers-stuck"):
                left = await load.copy(ends, left)

    async def _group_reads_all(self) -> None:
        """Demand that the group commits the end of every partition."""
        if not self._scenario.members:
            return
        ends = await self._ends(self._partitions)
        commits = self._outcome.history.commits

        def has_all() -> bool:
            done = {
                each.partition
                for each in commits
                if each.outcome == "ok" and each.offset == ends[each.partition]
            }
            return all(key in done for key in self._partitions if ends[key])

        await self._wait_until("group-stuck", has_all)

    async def _ends(
        self, keys: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the ends of logs, once each leader knows its role."""
        ends: dict[TopicPartition, int] = {}

        def have_all() -> bool:
            ends.update(
                {key: it.log.log_end_offset for key in keys for it in self._led(key)}
            )
            return all(key in ends for key in keys)

        await self._wait_until("no-leader", have_all)
        return ends

    def _led(self, key: TopicPartition) -> Iterator[Partition]:
        """Yield the leader's replica, if there is a leader that knows its role."""
        leader = self._control.standings()[key].leader
        if leader >= 0:
            partitions = self._cluster.brokers[leader].broker.replicas.partitions
            if key in partitions:
                yield partitions[key]

    async def _progress(self) -> None:
        """Read everything, and compare the replicas."""
        await self._read_transactions()
        ends = await self._ends(self._partitions)
        history = self._outcome.history
        async with trio.open_nursery() as nursery:
            reader = self._consumer()
            nursery.start_soon(reader.read, self._partitions)
            read_to = reader.positions
            await self._wait_until(
                "unreadable",
                lambda: all(read_to.get(key, 0) >= ends[key] for key in ends),
            )
            nursery.cancel_scope.cancel()
        for key in self._partitions:
            records = [
                (read.offset, read.value)
                for read in history.reads
                if read.consumer == reader.name and read.partition == key
            ]
            history.finals.append(
                FinalLog(partition=key, log_start_offset=0, records=tuple(records))
            )
        differ = self._differences
        await self._wait_until("replicas-differ", lambda: not differ(), differ)
        for each in self._cluster.up:
            each.broker.check()

    async def _read_transactions(self) -> None:
        """Demand that time-outs end open transactions, and read their records."""
        load = self._transactions
        if load is None:
            return
        await self._wait_until(
            "transactions-stuck", lambda: all(map(self._is_stable, load.outputs))
        )
        async with self._patience("unreadable-transactions"):
            await load.read_all(await self._ends(load.outputs))

    def _is_stable(self, key: TopicPartition) -> bool:
        return any(
            it.last_stable_offset == it.log.log_end_offset for it in self._led(key)
        )

    def _differences(self) -> list[str]:
        outputs = () if self._transactions is None else self._transactions.outputs
        return list(differences(self._cluster.up, [*self._partitions, *outputs]))

    async def _wait_until(
        self, kind: str, condition: Callable[[], bool], describe: _Describe = tuple
    ) -> None:
        """Wait for a state that a cluster without faults must reach."""
        async with self._patience(kind, describe):
            # Nothing signals all these conditions; polling is free in virtual time.
            while not condition():  # noqa: ASYNC110 see above
                await trio.sleep(_LOOK_S)

    @asynccontextmanager
    async def _patience(
        self, kind: str, describe: _Describe = tuple
    ) -> AsyncIterator[None]:
        """End the day if the block takes too long, with the lines of ``describe``."""
        with trio.move_on_after(PATIENCE_S) as scope:
            yield
        if scope.cancelled_caught:
            await self._give_up(
                kind, f"after {PATIENCE_S} s without faults", *describe()
            )

    async def _give_up(self, kind: str, *found: str) -> NoReturn:
        """Record anomalies, and end the day."""
        self._outcome.anomalies += [Anomaly(kind, what) for what in found]
        self._day.cancel()
        await trio.sleep_forever()


def _settings(scenario: Scenario) -> dict[str, str]:
    return {
        **scenario.settings,
        "default.replication.factor": str(scenario.replicas),
        "min.insync.replicas": str(scenario.min_insync),
        "offsets.topic.num.partitions": str(scenario.offsets_partitions),
        **_transaction_settings(scenario.transactions),
    }


def _transaction_settings(plan: TransactionsPlan | None) -> Mapping[str, str]:
    if plan is None:
        return {}
    partitions = {TRANSACTION_STATE_LOG_NUM_PARTITIONS.name: str(plan.state_partitions)}
    return {**plan.settings, **partitions}


def _features(scenario: Scenario) -> FinalizedFeatures:
    plan = scenario.transactions
    if plan is None:
        return NO_FEATURES
    levels = {name: level for name, level in plan.features.items() if level}
    return FinalizedFeatures(epoch=0, levels=levels)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
