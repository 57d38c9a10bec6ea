"""One run on a cluster: topics, clients, faults, and a look at the log when it is over.

The same in every world that has brokers; what differs is the stage, which is handed in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import trio

from experiments.cluster.book import Book
from experiments.cluster.clients import Asker, Client, Producer
from experiments.cluster.commands import Leadership
from experiments.cluster.controller import ScriptedController
from experiments.cluster.last_log import records_of
from experiments.cluster.stage import Stage
from experiments.cluster.timeline import Timeline
from experiments.design.cluster import Cluster
from experiments.design.config import Experiment
from experiments.load import frames
from experiments.load.senders import senders
from experiments.load.trace import Trace
from experiments.records.recording import NEVER
from experiments.worlds.world import Trial

_NS = 1_000_000_000
# Followers have found their leaders, and caught up, when so much has passed.
_SETTLE_S = 0.5
_LEAD_NS = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of a run, on the stage's clock.

    ``offered_ns`` is when each request of the trace was taken up, ``found`` how many
    records of each attempt the last leaders have.
    """

    book: Book
    offered_ns: list[int]
    origin_ns: int
    ended_ns: int
    found: Counter[int]


class Scene:
    """The brokers of a stage, under the load and the faults of a trial."""

    def __init__(self, stage: Stage, trial: Trial, replayed: Trace, book: Book) -> None:
        experiment = trial.experiment
        assert experiment.cluster is not None
        self._cluster: Cluster = experiment.cluster
        self._experiment: Experiment = experiment
        self._stage = stage
        self._book = book
        self._replayed = replayed
        merges = trial.arm.controller == "merged"
        self._controller = ScriptedController(
            stage, book, merges=merges, decision_ms=self._cluster.decision_ms
        )
        self._timeline = Timeline(
            experiment.faults, stage, self._controller, self._cluster.session_ms
        )
        self._topics = frames.topics(experiment.workload)
        self._clients = list(self._made(f"{experiment.experiment.seed}/{trial.block}"))

    async def play(self) -> Played:
        """Play the scene from the creation of its topics to the last log."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._controller.run)
            await self._controller.create(self._partitions())
            await trio.sleep(_SETTLE_S)
            origin_ns = self._stage.now_ns() + _LEAD_NS
            offered_ns = await self._under_load(origin_ns)
            ended_ns = self._stage.now_ns()
            await self._controller.drained()
            await trio.sleep(_SETTLE_S)
            nursery.cancel_scope.cancel()
        return Played(
            book=self._book,
            offered_ns=offered_ns,
            origin_ns=origin_ns,
            ended_ns=ended_ns,
            found=await self._in_the_end(),
        )

    def _made(self, seed: str) -> Iterable[Client]:
        """Yield the clients of the load, by their connections' numbers."""
        about = (self._stage, self._book, self._cluster, seed)
        timeout_ms = self._experiment.limits.timeout_ms
        for sender in senders(self._experiment.workload):
            if sender.traffic.request.api == "produce":
                yield Producer(timeout_ms, sender, *about)
            else:
                yield Asker(next(iter(self._topics)), sender, *about)

    def _partitions(self) -> list[Leadership]:
        return [
            Leadership(
                topic=topic,
                partition=partition,
                leader=self._cluster.leader,
                leader_epoch=0,
                isr=self._cluster.replicas,
                replicas=self._cluster.replicas,
            )
            for topic, count in self._topics.items()
            for partition in range(count)
        ]

    async def _under_load(self, origin_ns: int) -> list[int]:
        """Offer the trace, let faults happen; return when each request was offered."""
        offered_ns = [NEVER] * len(self._replayed)
        workload, limits = self._experiment.workload, self._experiment.limits
        until_ns = origin_ns + round((workload.duration_s + limits.drain_s) * _NS)
        async with trio.open_nursery() as nursery:
            for client in self._clients:
                nursery.start_soon(client.run)
            nursery.start_soon(self._timeline.run, origin_ns)
            due = zip(
                self._replayed.column("intended_ns"),
                self._replayed.column("connection"),
                strict=True,
            )
            for number, (intended_ns, connection) in enumerate(due):
                await self._stage.until(origin_ns + intended_ns)
                offered_ns[number] = self._stage.now_ns()
                self._clients[connection].offer(number, origin_ns + intended_ns)
            with trio.move_on_after((until_ns - self._stage.now_ns()) / _NS):
                for client in self._clients:
                    await client.idle()
            nursery.cancel_scope.cancel()
        return offered_ns

    async def _in_the_end(self) -> Counter[int]:
        """Return how many records of each attempt the last leaders have."""
        found: Counter[int] = Counter()
        for topic, count in self._topics.items():
            for partition in range(count):
                leader = self._controller.leader_of(topic, partition)
                address = self._stage.nodes[leader].data
                found += await records_of(self._stage, address, topic, partition)
        return found
