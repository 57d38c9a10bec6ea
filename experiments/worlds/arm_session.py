"""A session of processes: the brokers of its arms, alive together and pinned alike.

One broker at a time has load; the others are idle. A reference loop is timed in the
idle time of the brokers' CPU. Records are joined and written after the session, because
that would take CPU time from the measured processes. A run with its own broker is a
session of one arm and one episode (`run_alone`).
"""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol, Self

import pyarrow as pa

from experiments.design.config import Arm, Experiment
from experiments.load import trace
from experiments.load.arrivals import SECOND_NS
from experiments.load.episodes import READY, Order, SessionJob, targets_line
from experiments.load.generator import Target
from experiments.load.lateness import late
from experiments.load.replaying import Seen
from experiments.load.trace import Trace
from experiments.processes.children import Child, CpuTime, RunFailed
from experiments.processes.pinning import Pinning
from experiments.processes.scratch import scratch
from experiments.processes.speed_probe import SpeedProbe
from experiments.records import recording
from experiments.records.broker_rows import BrokerRecord, SessionRecord
from experiments.records.environment import now
from experiments.records.machine import Watch
from experiments.worlds.episodic_world import Conditions, Episode
from experiments.worlds.row_joining import LoadEnd, join, requests_of
from experiments.worlds.world import MachineTrial, RunFiles, RunResult

# The first episode has a cold interpreter and creates files. Further unrecorded ones
# would cost a session of eight brokers two thirds of the time of its rounds.
_UNRECORDED_EPISODES: Final = 1
_STARTED_TIMEOUT_S: Final = 60.0
# Time beyond the length of an episode: encoding, reading answers, writing rows.
_GRACE_S: Final = 40.0
_FOREVER_NS: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The results of a stopped broker: its fault, its record, its own phases.

    A broker without a row per request has no ``record``, but may report the mean time
    of its phases by API.
    """

    fault: str
    record: Path | None = None
    phases_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


class Host(Protocol):
    """An arm's broker, alive until it is stopped."""

    @property
    def processes(self) -> tuple[Child, ...]:
        """Return the broker, and its companion processes."""

    def target(self) -> Target:
        """Wait until the broker listens; return its addresses."""

    def cpu_time(self) -> CpuTime:
        """Return the broker's CPU time so far."""

    def stop(self) -> Ended:
        """Stop the broker cleanly."""


class Hosts(Protocol):
    """Starts the brokers of a world.

    A new broker first has load for at least ``unrecorded_s``, without recording.
    """

    unrecorded_s: float

    def start(
        self, experiment: Experiment, arm: Arm, at: Path
    ) -> AbstractContextManager[Host]:
        """Start an arm's broker, with its files below ``at``.

        :raises experiments.worlds.world.WorldError: if such a broker is impossible.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One completed episode, before its files are read."""

    trial: MachineTrial
    replayed: Trace
    end: LoadEnd
    loop_us: float
    machine: dict[str, float]
    observed: Path
    started: str
    seconds: float


class Session:
    """The processes of a session, and the completed episodes.

    :raises experiments.processes.children.RunFailed: if one of them ends or is silent.
    """

    def __init__(
        self,
        world: str,
        experiment: Experiment,
        arms: Sequence[Arm],
        hosts: Hosts,
        pinning: Pinning,
        tick: Callable[[], None],
    ) -> None:
        self._world = world
        self._experiment = experiment
        self._arms = arms
        self._hosts = hosts
        self._pinning = pinning
        self._tick = tick
        self._stack = contextlib.ExitStack()
        self._alive: dict[str, Host] = {}
        self._runs: list[_Run] = []
        self._traces: dict[str, Path] = {}

    def __enter__(self) -> Self:
        """Start all processes; end all started ones if one fails to start."""
        try:
            self._start()
        except BaseException:
            # ``__exit__`` is not called after a failed ``__enter__``: processes would
            # keep running.
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        self._stack.enter_context(self._pinning.off_broker_cpu())
        directory = scratch("doorkeeper-session-")
        self._at = Path(self._stack.enter_context(directory))
        for arm in self._arms:
            at = self._of(arm.name)
            at.mkdir()
            host = self._hosts.start(self._experiment, arm, at)
            self._alive[arm.name] = self._stack.enter_context(host)
        self._load = self._child("generator", "experiments.load.episodes", self._job())
        targets = {arm: host.target() for arm, host in self._alive.items()}
        self._probe = self._stack.enter_context(
            SpeedProbe(self._pinning, self._at, self._tick)
        )
        self._load.send(targets_line(targets))
        line = self._load.line(_STARTED_TIMEOUT_S, *self._everyone())
        if line != READY:
            raise self._load.failure(f"printed {line!r}")

    def _child(self, name: str, module: str, argument: str) -> Child:
        command = [sys.executable, "-m", module, argument]
        complaints = self._at / f"{name}.err"
        return self._stack.enter_context(
            Child(name, command, complaints, tick=self._tick)
        )

    def _job(self) -> str:
        job = SessionJob(
            content=self._experiment.content(),
            binding=asdict(self._pinning.binding(self._pinning.generator)),
        )
        file = self._at / "job.json"
        file.write_text(json.dumps(asdict(job)), encoding="utf-8")
        return str(file)

    def run_unrecorded(self, trial: MachineTrial, replayed: Trace) -> None:
        """Run unrecorded episodes."""
        span_s = trial.experiment.workload.duration_s
        for _ in range(
            max(_UNRECORDED_EPISODES, math.ceil(self._hosts.unrecorded_s / span_s))
        ):
            self._order(trial, replayed, None)

    def run_episode(self, trial: MachineTrial, replayed: Trace) -> Conditions:
        """Run an episode; return its conditions."""
        broker = self._alive[trial.arm.name]
        observed = self._at / f"{trial.run_id}.arrow"
        # Before the machine is watched, because storing is no part of an episode.
        self._stored(replayed)
        started, began = now(), time.monotonic()
        watch = Watch(self._probe, self._pinning.broker, self._everyone())
        cpu = broker.cpu_time()
        summary = self._order(trial, replayed, observed)
        used = broker.cpu_time() - cpu
        loop_us, machine = watch.end()
        met = Conditions(
            late_p99_ns=summary.pop("late_p99_ns"),
            off_cpu_ns=summary.pop("off_cpu_ns"),
            loop_us=loop_us,
        )
        self._runs.append(
            _Run(
                trial=trial,
                replayed=replayed,
                end=LoadEnd(**summary, broker_cpu=used),
                loop_us=loop_us,
                machine={**machine, "away_s": met.off_cpu_ns / 1e9},
                observed=observed,
                started=started,
                seconds=time.monotonic() - began,
            )
        )
        return met

    def _order(
        self, trial: MachineTrial, replayed: Trace, out: Path | None
    ) -> dict[str, Any]:
        """Order an episode from the generator; return its report of the end."""
        experiment = trial.experiment
        span_s = experiment.workload.duration_s + experiment.limits.drain_s
        order = Order(
            arm=trial.arm.name,
            trace=str(self._stored(replayed)),
            span_ns=round(span_s * SECOND_NS),
            warmup_ns=_warmup_ns(trial),
            out=None if out is None else str(out),
        )
        self._load.send(order.line())
        patience_s = span_s + _GRACE_S
        summary: dict[str, Any] = json.loads(
            self._load.line(patience_s, *self._everyone())
        )
        return summary

    def finish(self) -> Iterator[Episode]:
        """Stop all brokers, then join their records and the generator's, in order."""
        with ThreadPoolExecutor(len(self._alive)) as at_once:
            ends = at_once.map(lambda host: host.stop(), self._alive.values())
            ended = dict(zip(self._alive, ends, strict=True))
        records = {
            arm: SessionRecord(end.record)
            for arm, end in ended.items()
            if end.record is not None
        }
        following_ns: dict[str, list[int]] = {arm: [] for arm in ended}
        for run in self._runs:
            following_ns[run.trial.arm.name].append(run.end.origin_ns)
        for run in self._runs:
            arm = run.trial.arm.name
            end = replace(run.end, fault=ended[arm].fault)
            del following_ns[arm][0]
            last = not following_ns[arm]
            broker, seen = None, _read(run.observed)
            if arm in records:
                until_ns = _FOREVER_NS if last else following_ns[arm][0]
                requests = requests_of(seen)
                broker = _record(records[arm], requests, end.origin_ns, until_ns)
            joined = join(self._world, run.trial, run.replayed, seen, broker, end)
            yield Episode(
                trial=run.trial,
                requests=joined.requests,
                samples=joined.samples,
                result=replace(
                    joined.result,
                    loop_us=run.loop_us,
                    machine=run.machine,
                    # Values of the whole session, reported once.
                    broker_phases_ms=ended[arm].phases_ms if last else {},
                ),
                started=run.started,
                seconds=run.seconds,
            )

    def _stored(self, replayed: Trace) -> Path:
        """Store a trace for the generator, once for the arms of its round."""
        name = f"trace-{replayed.block}"
        if name not in self._traces:
            path = self._at / f"{name}.parquet"
            trace.store(replayed, path)
            self._traces = {name: path}
        return self._traces[name]

    def _of(self, arm: str) -> Path:
        return self._at / f"broker-{arm}"

    def _everyone(self) -> tuple[Child, ...]:
        return tuple(each for host in self._alive.values() for each in host.processes)


def _record(
    record: SessionRecord, requests: int, origin_ns: int, until_ns: int
) -> BrokerRecord:
    """Return a broker's record of an episode.

    Values reported at its stop, for the whole session, are in the last episode.
    """
    found = record.episode(requests, origin_ns, until_ns)
    if until_ns != _FOREVER_NS:
        return found
    return replace(found, violations=record.violations, accounts=record.accounts)


def _warmup_ns(trial: MachineTrial) -> int:
    """Return the start of the analysed part of an episode."""
    return round(trial.experiment.workload.warmup_s * SECOND_NS)


def _read(path: Path) -> Seen:
    """Read the generator's observations of an episode into arrays."""
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    return {name: table[name].to_numpy() for name in table.column_names}


def run_alone(
    session: Session,
    trial: MachineTrial,
    replayed: Trace,
    out: RunFiles,
    *,
    unrecorded_first: bool,
) -> RunResult:
    """Run one episode in a session of its own, and write its rows.

    A failed run is a result with a reason.

    :raises WorldError: if the next run would fail in the same way.
    """
    try:
        with session:
            if unrecorded_first:
                session.run_unrecorded(trial, replayed)
            session.run_episode(trial, replayed)
            (episode,) = session.finish()
    except RunFailed as failure:
        return RunResult.without_rows(str(failure), replayed)
    recording.write(episode.requests, out.requests)
    recording.write(episode.samples, out.samples)
    result = episode.result
    p99_ns = result.lateness_ns["p99"]
    fault = late(p99_ns, trial.experiment.limits.lateness_p99_ms)
    reason = "; ".join(filter(None, (result.reason, fault)))
    return replace(result, valid=not reason, reason=reason)
