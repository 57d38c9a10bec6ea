"""The contract of a world, which replays the trace of a block to one arm.

The live world starts processes, the virtual world runs the broker under a mock clock,
the model world runs its planes on an event heap. The runner knows only this protocol,
so every world gets the same blocks, the same shuffled order, retries and resumption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

from experiments.design.config import Arm, Experiment
from experiments.design.points import PlannedPoint
from experiments.design.world_config import WORLDS
from experiments.load.trace import Trace
from experiments.records.recording import RunLabels

# A load sends requests as a controller, on the clients' listener or on that of the
# control plane. A single broker accepts a controller only if it is configured to.
LOAD_AS_CONTROLLER: Final[Mapping[str, str]] = MappingProxyType(
    {"doorkeeper.controller.listeners": "PLAINTEXT,CONTROLLER"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One arm in one block of a planned point, at its position in the shuffled order.

    ``attempt`` counts earlier invalid runs of the same trial.
    """

    point: PlannedPoint
    block: int
    arm: Arm
    order: int
    attempt: int = 0

    @property
    def experiment(self) -> Experiment:
        """Return the point's experiment, in nominal time."""
        return self.point.experiment

    @property
    def run_id(self) -> str:
        """Return the name of this run, which its rows and files contain."""
        return f"{self.stem}{self.attempt}"

    @property
    def stem(self) -> str:
        """Return the common prefix of the names of this trial's attempts."""
        return f"{self.point.prefix}b{self.block:03d}-{self.arm.name}-t"

    @property
    def session(self) -> int:
        """Return the session that the run belongs to."""
        return self.experiment.session_of(self.block)

    def on_machine(self) -> MachineTrial:
        """Return the trial in the time of the machine that runs it."""
        there = self.point.on_machine()
        arm = next(arm for arm in there.all_arms() if arm.name == self.arm.name)
        return MachineTrial(
            experiment=there,
            block=self.block,
            arm=arm,
            prefix=self.point.prefix,
            attempt=self.attempt,
            stretch=self.point.stretch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTrial:
    """A trial as a world runs it: ``experiment`` and ``arm`` are in machine time.

    ``stretch`` is the factor from nominal time, for the record.
    """

    experiment: Experiment
    block: int
    arm: Arm
    prefix: str = ""
    attempt: int = 0
    stretch: float = 1.0

    @property
    def run_id(self) -> str:
        """Return the name of this run, which its rows and files contain."""
        return f"{self.stem}{self.attempt}"

    @property
    def stem(self) -> str:
        """Return the common prefix of the names of this trial's attempts."""
        return f"{self.prefix}b{self.block:03d}-{self.arm.name}-t"

    @property
    def session(self) -> int:
        """Return the session that the run belongs to."""
        return self.experiment.session_of(self.block)

    def labels(self, world: str) -> RunLabels:
        """Return the labels of this run's rows."""
        return RunLabels(
            run_id=self.run_id,
            block=self.block,
            session=self.session,
            arm=self.arm.name,
            scheduler=self.arm.scheduler,
            world=world,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFiles:
    """The files of a run's rows. The runner renames them after the run.

    Only a run on a cluster has ``attempts``.
    """

    requests: Path
    samples: Path
    attempts: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run; its rows are in its files unless ``recorded`` is False.

    ``broker_cpu_wait_s`` is the time for which other processes had the broker's CPU.
    ``violations`` counts broken laws (``planes.laws``); None if the broker did not
    report them. ``accounts`` has the CPU time of the broker's process, and its parts
    billed to requests and to housekeeping. ``broker_phases_ms`` are mean phases by API,
    reported by a broker without rows. ``late_requests`` counts, by class, the requests
    sent later than ``limits.lateness_p99_ms``. ``loop_us`` is the mean time of the
    reference loop on the broker's CPU (`processes.idle_probe`), ``machine`` holds the
    kernel's accounts of the machine (`records.machine`). ``cost_ratio`` is the measured
    over the calibrated cost of the answered requests (`records.cost_ratio`). The last
    three are recorded only; they discard no run.
    """

    valid: bool
    reason: str = ""
    recorded: bool = True
    trace_sha256: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    lateness_ns: Mapping[str, int] = field(default_factory=dict)
    lateness_by_class_ns: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    violations: Mapping[str, int] | None = None
    accounts: Mapping[str, int] = field(default_factory=dict)
    broker_cpu_s: float | None = None
    broker_cpu_wait_s: float | None = None
    cost_ratio: float | None = None
    broker_phases_ms: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    late_requests: Mapping[str, int] = field(default_factory=dict)
    loop_us: float | None = None
    machine: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def without_rows(cls, reason: str, trace: Trace) -> RunResult:
        """Return the result of a run without rows."""
        return cls(
            valid=False, reason=reason, recorded=False, trace_sha256=trace.sha256
        )


def is_computed(world: str) -> bool:
    """Return whether runs of a world give the same rows on any machine."""
    entry = WORLDS.get(world)
    return entry is not None and entry.computed


class WorldError(Exception):
    """No trial can run here, and repetition does not help; the message states why."""


class World(Protocol):
    """A place to replay traces in."""

    name: str

    def environment(self) -> Mapping[str, Any]:
        """Return this world's entry for the manifest's environment."""

    def run(self, trial: MachineTrial, trace: Trace, out: RunFiles) -> RunResult:
        """Replay the trace to the trial's arm and write its rows to ``out``.

        A failed run is a result with a reason, not an exception.

        :raises WorldError: if the next run would fail in the same way.
        """

    def estimate_s(self, experiment: Experiment) -> float:
        """Return the approximate length of a run, for the plan and the progress bar."""
