"""One run on a cluster: topics, clients, faults, and the final content of the log.

All worlds with brokers share this code: members of one ZooKeeper, and one more broker
without replicas as their controller. The worlds differ in their `ClusterUnderTest`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from broker.protocol.topic_partition import TopicPartition
from experiments.cluster.attempt_log import AttemptLog
from experiments.cluster.cluster_clients import Client, MetadataReader, Producer
from experiments.cluster.cluster_operator import ClusterOperator
from experiments.cluster.cluster_under_test import LOST, ClusterUnderTest
from experiments.cluster.last_log import LogUnreadable, records_of
from experiments.cluster.timeline import Timeline
from experiments.cluster.watched_decisions import Decision, Decisions
from experiments.design.cluster_config import Cluster
from experiments.design.config import Experiment
from experiments.load import frames
from experiments.load.senders import senders
from experiments.load.trace import Trace
from experiments.processes.children import CpuTime, RunFailed
from experiments.records.recording import NEVER
from experiments.worlds.world import MachineTrial

_NS = 1_000_000_000
# Time for followers to find their leaders and catch up.
_SETTLE_S = 0.5
_LEAD_NS = 20_000_000
_PATIENCE_S, _PAUSE_S = 60.0, 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOutcome:
    """The result of a run, in instants of the cluster's clock.

    ``offered_ns`` is the instant at which each request of the trace was offered to its
    client. ``decisions`` are the controller's on existing partitions. ``found`` is the
    number of each attempt's records in the last leaders' logs. ``leader_cpu`` is the
    CPU time under load of the broker that leads first.
    """

    attempt_log: AttemptLog
    decisions: list[Decision]
    offered_ns: list[int]
    origin_ns: int
    ended_ns: int
    found: Counter[int]
    leader_cpu: CpuTime


def reasons(failures: BaseExceptionGroup[RunFailed]) -> str:
    """Return the messages of all failures, at any depth of nesting."""
    messages = [
        reasons(each) if isinstance(each, BaseExceptionGroup) else str(each)
        for each in failures.exceptions
    ]
    return "; ".join(dict.fromkeys(messages))


class LoadedCluster:
    """A cluster under the load and the faults of a trial.

    Both happen ``rehearsals`` times before without a record; an election undoes each
    rehearsal.
    """

    def __init__(
        self,
        under_test: ClusterUnderTest,
        trial: MachineTrial,
        replayed: Trace,
        attempt_log: AttemptLog,
        rehearsals: int = 0,
    ) -> None:
        experiment = trial.experiment
        assert experiment.cluster is not None
        self._cluster: Cluster = experiment.cluster
        self._experiment: Experiment = experiment
        self._under_test = under_test
        self._attempt_log = attempt_log
        self._replayed = replayed
        self._rehearsals = rehearsals
        self._topics = frames.topics(experiment.workload)
        self._seed = f"{experiment.experiment.seed}/{trial.block}"
        self._operator = ClusterOperator(under_test, self._topics)
        self._decisions = Decisions(
            under_test, random.Random(f"{self._seed}/decisions")
        )

    async def run(self) -> ClusterOutcome:
        """Run the trial from the creation of its topics to the last log.

        :raises RunFailed: if the cluster cannot be set up or read.
        """
        async with trio.open_nursery() as nursery:
            await nursery.start(self._decisions.run)
            await self._set_up()
            for _ in range(self._rehearsals):
                await self._under_load(self._under_test.now_ns() + _LEAD_NS)
                await self._put_back()
            origin_ns = self._under_test.now_ns() + _LEAD_NS
            before = self._under_test.faults.cpu_time(self._cluster.leader)
            offered_ns = await self._under_load(origin_ns)
            after = self._under_test.faults.cpu_time(self._cluster.leader)
            ended_ns = self._under_test.now_ns()
            await trio.sleep(_SETTLE_S)
            found = await self._in_the_end()
            nursery.cancel_scope.cancel()
        return ClusterOutcome(
            attempt_log=self._attempt_log,
            decisions=self._decisions.made,
            offered_ns=offered_ns,
            origin_ns=origin_ns,
            ended_ns=ended_ns,
            found=found,
            leader_cpu=after - before,
        )

    def _clients(self) -> Iterable[Client]:
        """Yield new clients of the load, in the order of their connections."""
        about = (self._under_test, self._attempt_log, self._cluster, self._seed)
        timeout_ms = self._experiment.limits.timeout_ms
        for sender in senders(self._experiment.workload):
            if sender.traffic.request.api == "produce":
                yield Producer(timeout_ms, sender, *about)
            else:
                yield MetadataReader(next(iter(self._topics)), sender, *about)

    async def _set_up(self) -> None:
        """Create the topics: one replica leads, another is the preferred one."""
        await self._operator.wait_for_all()
        await self._operator.create(self._cluster.leader_first)
        await self._operator.reassign(self._cluster.replicas)
        await self._decisions.follow(self._operator.keys)
        await self._wait_until_set_up()

    async def _put_back(self) -> None:
        """Make the first leader lead again, while another replica is preferred."""
        await trio.sleep(_SETTLE_S)
        await self._operator.reassign(self._cluster.leader_first)
        await self._operator.elect(one_by_one=False)
        await self._operator.reassign(self._cluster.replicas)
        await self._wait_until_set_up()

    async def _wait_until_set_up(self) -> None:
        with trio.move_on_after(_PATIENCE_S):
            # No event signals a decision, so the state is polled.
            while not all(  # noqa: ASYNC110 see above
                map(self._is_set_up, self._operator.keys)
            ):
                await trio.sleep(_PAUSE_S)
            await trio.sleep(_SETTLE_S)
            return
        leader = self._cluster.leader
        raise RunFailed(f"the topics are not led as they should be by {leader}")

    def _is_set_up(self, key: TopicPartition) -> bool:
        standing = self._decisions.standing(key)
        in_sync = set(standing.isr) == set(self._cluster.replicas)
        return in_sync and standing.leader == self._cluster.leader

    async def _under_load(self, origin_ns: int) -> list[int]:
        """Offer the trace and inject faults; return when each request was offered."""
        offered_ns = [NEVER] * len(self._replayed)
        workload, limits = self._experiment.workload, self._experiment.limits
        until_ns = origin_ns + round((workload.duration_s + limits.drain_s) * _NS)
        clients = list(self._clients())
        timeline = Timeline(
            self._experiment.faults, self._under_test, self._operator, self._cluster
        )
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(client.run)
            nursery.start_soon(timeline.run, origin_ns)
            due = zip(
                self._replayed.column("intended_ns"),
                self._replayed.column("connection"),
                strict=True,
            )
            for number, (intended_ns, connection) in enumerate(due):
                await self._under_test.until(origin_ns + intended_ns)
                offered_ns[number] = self._under_test.now_ns()
                clients[connection].offer(number, origin_ns + intended_ns)
            with trio.move_on_after((until_ns - self._under_test.now_ns()) / _NS):
                for client in clients:
                    await client.idle()
            nursery.cancel_scope.cancel()
        return offered_ns

    async def _in_the_end(self) -> Counter[int]:
        """Return the number of each attempt's records at the last leaders."""
        found: Counter[int] = Counter()
        for key in self._operator.keys:
            found += await self._records_of(key)
        return found

    async def _records_of(self, key: TopicPartition) -> Counter[int]:
        """Read a partition when its leader knows its role."""
        fault: Exception | None = None
        with trio.move_on_after(_PATIENCE_S):
            while True:
                leader = self._decisions.leader_of(key)
                if leader >= 0:
                    address = self._under_test.nodes[leader].data
                    try:
                        return await records_of(self._under_test, address, *key)
                    except (LogUnreadable, *LOST) as error:
                        fault = error
                await trio.sleep(_PAUSE_S)
        leader = self._decisions.leader_of(key)
        name = f"{key.topic}-{key.partition}"
        raise RunFailed(f"the log of {name}, led by {leader}, cannot be read: {fault}")
