"""An election in the model: what the controller says to the leader that is to go.

Of a cluster the model has one broker, the one that leads when the load begins, and of
that a queue and its readers. Every PRODUCE comes once; one whose turn comes when its
partition has another leader is turned away for ``model.refusal_us``. The controller has
one request in flight, and the next goes out when it is answered
(``broker.coordination.zookeeper.channels``). Followers, clients that try again, and
whatever becomes of records are left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from broker.observation.recording.recording import STAMPS as BROKER_STAMPS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.topic_partition import TopicPartition
from broker.requests.classifier import CONTROL
from experiments.design.config import Arm, Experiment
from experiments.design.faults import Elect
from experiments.load import frames
from experiments.load.senders import senders
from experiments.load.trace import Trace, TraceRow
from experiments.records.attempts import (
    BROKER_ERROR,
    NO_REQUEST,
    Attempt,
    attempts_table,
)
from experiments.records.recording import NEVER, Int64s, RunLabels
from experiments.worlds.model.classes import Classes
from experiments.worlds.model.commands import Command, Leadership, batch, merged
from experiments.worlds.model.engine import Engine
from experiments.worlds.model.task import ModelTask

_CLIENT = "controller"
_NONE = -1


class _Sent(NamedTuple):
    """A request of the controller's, as the model has it, and when it went out."""

    command: Command
    task: ModelTask
    sent_ns: int


class Election:
    """A controller's requests to the old leader, on a connection of their own."""

    def __init__(
        self,
        experiment: Experiment,
        arm: Arm,
        engine: Engine,
        classes: Classes,
        *,
        connection: int,
        trace: Trace,
        refusal_ns: int,
    ) -> None:
        assert experiment.cluster is not None
        self._experiment = experiment
        self._cluster = experiment.cluster
        self._merges = arm.controller == "merged"
        self._engine = engine
        self._classes = classes
        self._connection = connection
        self._first_number = len(trace)
        self._refusal_ns = refusal_ns
        self._partition_of = self._partitions(trace)
        self._moved: set[TopicPartition] = set()
        # Who is to be turned away when a partition has moved.
        self._led: dict[TopicPartition, list[ModelTask]] = {}
        self._waiting: deque[Command] = deque()
        self._sent: list[_Sent] = []
        self._flying: Command | None = None
        self._decided_ns = NEVER

    def begin(self, arrive: Callable[[ModelTask, int], bool]) -> None:
        """Decide at the times of the experiment; ``arrive`` takes a request in."""
        self._arrive = arrive
        decision_ns = round(self._cluster.decision_ms * 1e6)
        for fault in self._experiment.faults:
            if not isinstance(fault, Elect):
                continue
            at_ns = round(fault.at_s * 1e9)
            states = self._elected(fault.leader)
            batches = [[it] for it in states] if fault.one_by_one else [states]
            for number, each in enumerate(batches, start=1):
                decide = partial(self._decide, each)
                self._engine.at(at_ns + number * decision_ns, decide)

    def watched(self, tasks: Iterable[ModelTask]) -> Iterator[ModelTask]:
        """Pass the requests of the trace on, and keep those that an election is about.

        It is called for each of them when the one before has arrived.
        """
        for task in tasks:
            key = self._partition_of[task.number]
            if key in self._moved:
                self._turn_away(task)
            elif task.api_key == ApiKey.PRODUCE:
                self._led.setdefault(key, []).append(task)
            yield task

    def has(self, task: ModelTask) -> bool:
        """Say whether a task is the controller's."""
        return task.number >= self._first_number

    def answered(self, task: ModelTask) -> None:
        """Hear that the broker has answered: what waits longest goes out."""
        command, self._flying = self._flying, None
        assert command is not None
        if command.api_key is ApiKey.LEADER_AND_ISR:
            for it in command.states:
                self._moved.add(it.key)
                for waiting in self._led.pop(it.key, ()):
                    if waiting.dequeued_ns < 0:
                        self._turn_away(waiting)
        # Not amid the broker's own bookkeeping of the answer.
        self._engine.at(task.response_sent_ns, self._send)

    def attempts(
        self, labels: RunLabels, trace: Trace, stamps: dict[str, Int64s]
    ) -> pa.Table:
        """Return all requests as attempts; ``stamps`` are those of the trace's."""
        produce = np.array(trace.column("api_key")) == int(ApiKey.PRODUCE)
        partitions = self._partition_of
        steps = self._stepped_down_ns()
        refused = np.array(
            [
                it in steps and 0 <= steps[it] < done_ns
                for it, done_ns in zip(partitions, stamps["local_done_ns"], strict=True)
            ]
        )
        errors = np.where(refused, int(ErrorCode.not_leader_or_follower), 0)
        rows = [
            Attempt(
                request_id=number,
                broker=self._cluster.leader,
                api_key=int(ApiKey.PRODUCE),
                partition=partitions[number].partition,
                acks=_NONE,
                records=1,
                intended_ns=trace_ns,
                sent_ns=trace_ns,
                client_done_ns=int(stamps["response_sent_ns"][number]),
                error_code=int(errors[number]),
                base_offset=_NONE,
                leader=_NONE,
                kept=_NONE,
            )
            for number, trace_ns in enumerate(trace.column("intended_ns"))
            if produce[number]
        ]
        rows += [self._row(sent) for sent in self._sent]
        columns = {
            name: np.concatenate(
                [
                    stamps[name][produce],
                    [getattr(sent.task, name) for sent in self._sent],
                ]
            ).astype(np.int64)
            for name in BROKER_STAMPS
        }
        # What is refused has nothing to wait for; what is appended waits for replicas.
        columns[BROKER_ERROR] = np.concatenate(
            [errors[produce], np.zeros(len(self._sent), np.int64)]
        ).astype(np.int64)
        return attempts_table(labels, rows, columns)

    def _turn_away(self, task: ModelTask) -> None:
        """Have a request that was not begun cost no more than a refusal."""
        task.demand_ns = self._refusal_ns

    def _elected(self, leader: int | None) -> list[Leadership]:
        replicas = self._cluster.replicas
        return [
            Leadership(
                key=TopicPartition(topic, partition),
                leader=replicas[0] if leader is None else leader,
            )
            for topic, count in frames.topics(self._experiment.workload).items()
            for partition in range(count)
        ]

    def _decide(self, states: Sequence[Leadership], now_ns: int) -> None:
        if self._decided_ns == NEVER:
            self._decided_ns = now_ns
        self._waiting += batch(states)
        self._send(now_ns)

    def _send(self, now_ns: int) -> None:
        if self._flying is not None or not self._waiting:
            return
        if self._merges:
            self._waiting = deque(merged(self._waiting))
        command = self._flying = self._waiting.popleft()
        row = TraceRow(
            request_id=self._first_number + len(self._sent),
            intended_ns=now_ns,
            traffic="",
            reported_class=CONTROL,
            flow=_CLIENT,
            connection=self._connection,
            sequence=len(self._sent),
            api_key=int(command.api_key),
            size_bytes=0,
            demand_ns=round(self._cluster.control_us * 1000),
        )
        task = self._classes.task(row, CONTROL)
        self._sent.append(_Sent(command, task, now_ns))
        self._arrive(task, now_ns)

    def _row(self, sent: _Sent) -> Attempt:
        last = sent.command.states[-1]
        return Attempt(
            request_id=NO_REQUEST,
            broker=self._cluster.leader,
            api_key=int(sent.command.api_key),
            partition=last.key.partition,
            acks=0,
            records=0,
            intended_ns=self._decided_ns,
            sent_ns=sent.sent_ns,
            client_done_ns=sent.task.response_sent_ns,
            error_code=0,
            base_offset=_NONE,
            leader=last.leader,
            kept=_NONE,
        )

    def _partitions(self, trace: Trace) -> list[TopicPartition]:
        """Return the topic and partition that each request of the trace is about."""
        topics = frames.topics(self._experiment.workload)
        of_connection = []
        for sender in senders(self._experiment.workload):
            topic = frames.topic_of(sender.traffic.name)
            partition = sender.position % topics.get(topic, 1)
            of_connection.append(TopicPartition(topic, partition))
        return [of_connection[connection] for connection in trace.column("connection")]

    def _stepped_down_ns(self) -> dict[TopicPartition, int]:
        """Return when the broker stepped down from partitions, `NEVER` if not."""
        return {
            it.key: sent.task.local_done_ns
            for sent in self._sent
            if sent.command.api_key is ApiKey.LEADER_AND_ISR
            for it in sent.command.states
        }
