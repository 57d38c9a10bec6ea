"""The model world: the broker's planes under the same traces, without a broker.

Planes, policies, admission and locks are the broker's own objects, built from the same
keys. Connections, processors and handlers are a few lines each (``readers``,
``engine``). Bytes, partitions, disks, purgatory and the network's own time are omitted.
A run of a million requests therefore takes seconds, and differences from the live world
come from the omitted parts, not from the policy.

The file has the steps of a run in order.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.config import (
    DOORKEEPER_QUANTUM_US,
    DOORKEEPER_READER,
    DOORKEEPER_RECORD_SAMPLES_MS,
    NUM_NETWORK_THREADS,
    BrokerConfig,
)
from broker.observation.recording.law_book import LawBook
from experiments.design.config import Experiment
from experiments.design.model_config import ModelSection
from experiments.load.closed_loop import rules_of
from experiments.load.senders import senders
from experiments.load.trace import Trace
from experiments.records import recording
from experiments.worlds.model.classes import Classes
from experiments.worlds.model.clients import Ended, ModelClients
from experiments.worlds.model.engine import Engine
from experiments.worlds.model.planes import Layout, lay_out
from experiments.worlds.model.readers import Connection, Processor, Readers
from experiments.worlds.model.recorder import Recorder
from experiments.worlds.model.site import Overheads, Site
from experiments.worlds.model.task import ModelTask
from experiments.worlds.model.threads import Kernel, Threads
from experiments.worlds.world import MachineTrial, RunFiles, RunResult
from planes import Cpu

_REQUESTS_PER_S = 60_000
_OVERHEAD_S = 0.2


def make(tick: Callable[[], None]) -> Model:
    """Return this world."""
    return Model(tick)


class Model:
    """Runs trials on an event heap; ``tick`` is called once per run."""

    name = "model"

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick

    def environment(self) -> Mapping[str, Any]:
        """Return nothing, because the model depends on no machine."""
        return {}

    def estimate_s(self, experiment: Experiment) -> float:
        """Estimate from the requests of a block, at the speed of a slow machine."""
        workload = experiment.workload
        requests = sum(
            workload.mean_rate_per_s(entry) * (workload.stop_of(entry) - entry.start_s)
            for entry in workload.traffic
        )
        return requests / _REQUESTS_PER_S + _OVERHEAD_S

    def run(self, trial: MachineTrial, trace: Trace, out: RunFiles) -> RunResult:
        """Serve the trace and write its rows."""
        self._tick()
        run = _Run.prepare(trial, trace)
        # A run creates millions of objects and no cycle of references.
        gc.disable()
        try:
            run.serve()
        finally:
            gc.enable()
        intended_ns = trace.table["intended_ns"].to_numpy()
        results = run.recorder.results(intended_ns, run.ended_ns)
        timeout_ns = round(trial.experiment.limits.timeout_ms * 1e6)
        labels = trial.labels(self.name)
        rows = recording.requests_table(labels, trace, results, timeout_ns)
        recording.write(rows, out.requests)
        samples = recording.samples_table(labels, run.recorder.samples())
        recording.write(samples, out.samples)
        return RunResult(
            valid=True,
            trace_sha256=trace.sha256,
            counts=recording.counts(rows, len(trace)),
            lateness_ns={"p50": 0, "p99": 0, "max": 0},
            violations=run.laws.totals(),
        )


class _Ends:
    """Receives completed requests: records them, learns their cost, judges them."""

    def __init__(
        self,
        recorder: Recorder,
        classes: Classes,
        book: LawBook,
        intended_ns: Sequence[int],
    ) -> None:
        self._record, self._record_further = recorder.record, recorder.record_further
        self._learn = classes.learn
        self._laws = book.by_plane
        self._intended_ns = intended_ns

    def done(self, task: ModelTask) -> None:
        """Accept a request of an open loop."""
        self._record(task, self._intended_ns[task.number])
        self._judge(task)

    def ended(self, row: ModelTask, request: ModelTask, sent_ns: int) -> None:
        """Accept a row of a closed loop, and the request that carried it."""
        if row.number == request.number:
            self._record(request, sent_ns)
            self._judge(request)
        else:
            self._record_further(row.number, request, sent_ns)

    def _judge(self, task: ModelTask) -> None:
        self._learn(task)
        self._laws[task.plane].finished(task, task.connection, task.response_sent_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One trial, ready to run."""

    engine: Engine
    readers: Readers
    recorder: Recorder
    laws: LawBook
    ended_ns: int

    @classmethod
    def prepare(cls, trial: MachineTrial, trace: Trace) -> _Run:
        """Build planes, sites, connections and their requests."""
        experiment, arm = trial.experiment, trial.arm
        config = BrokerConfig.load(None, experiment.broker_keys(arm))
        settings = arm.model.settings(experiment.model)
        seed = f"{experiment.experiment.seed}/{trial.block}"
        layout = lay_out(config, arm.model.own, random.Random(f"{seed}/policy"))
        quantum_ns = config[DOORKEEPER_QUANTUM_US] * 1000
        engine = Engine(
            _sites(layout, settings, quantum_ns),
            quantum_ns=quantum_ns,
            refusal_ns=round(settings.refusal_us * 1000),
        )
        processors = [Processor() for _ in range(config[NUM_NETWORK_THREADS])]
        own = Processor() if layout.own_reader else None
        classes = Classes(config, settings, flat=layout.flat_levels, seed=seed)
        recorder = Recorder(
            {
                plane: 1 if settings.server == "cpu" else plane.seats
                for plane in layout.planes
            },
            [*processors, own] if own else processors,
        )

        book = LawBook(layout.planes, config, lambda: engine.now_ns)
        ends = _Ends(recorder, classes, book, trace.column("intended_ns"))
        clients = _clients(experiment, engine, ends.ended)
        readers = Readers(
            engine,
            _tasks(experiment, trace, classes),
            connections=_connections(experiment, processors, own),
            route=layout.plane_of,
            done=ends.done,
            class_aware=config[DOORKEEPER_READER] == "class-aware",
            clients=clients,
        )
        clients.sockets = readers
        ended_s = experiment.workload.duration_s + experiment.limits.drain_s
        every_ns = config[DOORKEEPER_RECORD_SAMPLES_MS] * 1_000_000
        recorder.sample_every(engine, readers, every_ns)
        return cls(
            engine=engine,
            readers=readers,
            recorder=recorder,
            laws=book,
            ended_ns=round(ended_s * 1e9),
        )

    def serve(self) -> None:
        """Serve until the run has ended."""
        self.engine.run(self.readers, until_ns=self.ended_ns)


def _sites(
    layout: Layout, settings: ModelSection, quantum_ns: int
) -> list[Site | Threads]:
    overheads = Overheads(
        granularity_ns=round(settings.granularity_us * 1000),
        preemption_ns=round(settings.preemption_us * 1000),
        switch_ns=round(settings.switch_us * 1000),
    )
    if settings.server == "threads":
        kernel = Kernel(
            cpus=settings.cpus,
            slice_ns=round(settings.slice_us * 1000),
            wakes=settings.wakes,
        )
        return [Threads(layout.planes, kernel, overheads)]
    if settings.server == "seats" and layout.lending is not None:
        return [Site(layout.planes, overheads, shared=layout.lending)]
    if settings.server == "seats":
        return [Site([plane], overheads) for plane in layout.planes]
    cpu = Cpu(layout.planes, quantum_ns=quantum_ns)
    return [Site(layout.planes, overheads, shared=cpu)]


def _connections(
    experiment: Experiment, processors: list[Processor], own: Processor | None
) -> list[Connection]:
    """Distribute connections over processors in turn, as Kafka's acceptor does."""
    dealt, connections = 0, []
    for sender in senders(experiment.workload):
        read_ns = round(sender.traffic.read_ms * 1e6)
        if own is not None and sender.traffic.request.is_controllers:
            connections.append(Connection(own, read_ns))
        else:
            processor = processors[dealt % len(processors)]
            connections.append(Connection(processor, read_ns))
            dealt += 1
    return connections


def _clients(experiment: Experiment, engine: Engine, ended: Ended) -> ModelClients:
    """Create the clients in a closed loop."""
    workload = experiment.workload
    further = {
        sender.number: sender.traffic.client.further
        for sender in senders(workload)
        if sender.traffic.client is not None
    }
    rules = rules_of(workload, experiment.limits.timeout_ms)
    return ModelClients(rules, further, at=engine.at, ended=ended)


def _tasks(
    experiment: Experiment, trace: Trace, classes: Classes
) -> Iterator[ModelTask]:
    """Create the requests of a trace, each when it is due."""
    class_of = {
        entry.name: entry.request.sent_class for entry in experiment.workload.traffic
    }
    for row in trace.rows():
        yield classes.task(row, class_of[row.traffic])
