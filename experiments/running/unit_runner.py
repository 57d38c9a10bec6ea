"""Runner of a unit of work in one world: a session of rounds, or runs one by one.

A *session* of an experiment with ``[sessions]`` keeps the processes of all arms alive
for all its rounds, if the world measures a machine. Otherwise each run has its own
processes, or none, and a block is a session of one round.

A run whose generator was late, or without its CPU, is discarded and repeated at once
(`Rounds`). If all its tries are disturbed, the round is discarded: the runs of all
arms. In computed worlds there is no such generator.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from experiments.design.config_errors import ExperimentError
from experiments.load.lateness import DISCARDED, late, without_cpu
from experiments.load.trace import Trace
from experiments.processes.children import RunFailed
from experiments.records.environment import now
from experiments.running.trials import (
    Answer,
    Failure,
    Outcome,
    TraceCache,
    Work,
    attempts_file,
    checked,
    on_its_machine,
    stored,
)
from experiments.running.world_registry import make_world
from experiments.worlds.episodic_world import (
    Conditions,
    Episode,
    EpisodicWorld,
    Session,
)
from experiments.worlds.world import (
    MachineTrial,
    RunFiles,
    RunResult,
    Trial,
    World,
    WorldError,
    is_computed,
)
from schedulers import policy_fault

Started = Callable[[Trial], None]


@dataclass(slots=True)
class Rounds:
    """The completed rounds, and their discarded runs.

    ``tries`` is the largest number of tries of a run. Repeating only the disturbed run
    keeps the arms of a round within seconds. If the whole round were repeated, ten arms
    with each run disturbed once in three would need 58 rounds for one.
    """

    tries: int
    discarded: dict[str, str] = field(default_factory=dict)

    def run(self, trials: Sequence[Trial], run: Callable[[Trial], _Verdict]) -> None:
        """Run a round; repeat a run that failed or whose generator was late."""
        standing: list[Trial] = []
        for trial in trials:
            fault = ""
            for again in range(self.tries):
                tried = replace(trial, attempt=trial.attempt + again)
                verdict = run(tried)
                fault = verdict.generator and (
                    f"{DISCARDED}: {verdict.generator} (arm {trial.arm.name})"
                )
                if fault:
                    self.discarded[tried.run_id] = fault
                else:
                    standing.append(tried)
                    if not verdict.failed:
                        break
            if fault:
                self.discarded |= {it.run_id: fault for it in standing}
                return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """Why the generator discards a run, if it does; and whether the run failed."""

    generator: str = ""
    failed: bool = False


class UnitRunner:
    """Runs work in one world, and keeps the last drawn trace."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._trace_cache = TraceCache()
        self._computed = is_computed(world.name)
        # The current run, to be named if it raises.
        self.run_id = ""

    def run(self, work: Work, started: Started) -> tuple[Outcome, ...]:
        """Run all rounds of a unit of work; return the outcome of each run.

        :raises WorldError: if no trial can run here.
        """
        first = work.rounds[0][0].experiment
        if first.sessions is None or self._computed:
            return tuple(self._runs(work, started))
        return tuple(self._session(work, started))

    # ---- runs one by one --------------------------------------------------------

    def _runs(self, work: Work, started: Started) -> Iterable[Outcome]:
        outcomes: list[Outcome] = []

        def run(trial: Trial) -> _Verdict:
            started(trial)
            outcome = self._run(trial, with_trace=trial.stem in work.with_trace)
            outcomes.append(outcome)
            p99_ns = outcome.result.lateness_ns.get("p99", 0)
            limits = trial.point.on_machine().limits
            return _Verdict(
                generator=late(p99_ns, limits.lateness_p99_ms),
                failed=not outcome.result.valid,
            )

        rounds = Rounds(self._tries(work))
        for trials in work.rounds:
            rounds.run(trials, run)
        return (_marked(outcome, rounds) for outcome in outcomes)

    def _tries(self, work: Work) -> int:
        """Return the number of tries; a computed run would fail again in each."""
        limits = work.rounds[0][0].experiment.limits
        return 1 if self._computed else 1 + limits.retries

    def _run(self, trial: Trial, *, with_trace: bool) -> Outcome:
        """Draw the trial's trace, replay it, and read the recording."""
        drawn = self._drawn(trial)
        started, began = now(), time.monotonic()
        load_average = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="doorkeeper-trial-") as scratch:
            files = RunFiles(
                requests=Path(scratch, "requests.parquet"),
                samples=Path(scratch, "samples.parquet"),
                attempts=attempts_file(trial, Path(scratch)),
            )
            there, replayed = on_its_machine(trial, drawn)
            result = checked(self._replayed(there, replayed, files), drawn)
            recorded = result.recorded
            return Outcome(
                trial=trial,
                result=result,
                requests=files.requests.read_bytes() if recorded else None,
                samples=files.samples.read_bytes() if recorded else None,
                attempts=files.attempts.read_bytes()
                if files.attempts and recorded
                else None,
                trace=stored(drawn) if with_trace else None,
                trace_sha256=drawn.sha256,
                trace_requests=len(drawn),
                started=started,
                seconds=time.monotonic() - began,
                load_average=load_average,
            )

    def _drawn(self, trial: Trial) -> Trace:
        self.run_id = trial.run_id
        return self._trace_cache.draw(trial)

    def _replayed(
        self, trial: MachineTrial, replayed: Trace, files: RunFiles
    ) -> RunResult:
        try:
            return self._world.run(trial, replayed, files)
        except BaseException as error:
            # The fault of a policy is deterministic, so no repetition helps.
            fault = policy_fault(error)
            if fault is None:
                raise
            raise WorldError(f"{trial.run_id}: {fault}") from error

    # ---- sessions ---------------------------------------------------------------

    def _session(self, work: Work, started: Started) -> Iterable[Outcome]:
        trials = [trial for round_ in work.rounds for trial in round_]
        try:
            rounds, episodes = self._episodes(work, started)
        except RunFailed as failure:
            return [self._failed(each, work, failure) for each in trials]
        return [_marked(self._outcome(each, work), rounds) for each in episodes]

    def _episodes(self, work: Work, started: Started) -> tuple[Rounds, list[Episode]]:
        """Start a session, run all arms once unrecorded, then run the rounds."""
        first = work.rounds[0][0]
        there = first.point.on_machine()
        limit_ms = there.limits.lateness_p99_ms
        rounds = Rounds(self._tries(work))
        with cast(EpisodicWorld, self._world).session(there) as session:

            def run(trial: Trial) -> _Verdict:
                started(trial)
                met = self._episode(session, trial)
                late_fault = late(met.late_p99_ns, limit_ms)
                return _Verdict(
                    generator=late_fault or without_cpu(met.off_cpu_ns, limit_ms)
                )

            for trial in work.rounds[0]:
                session.run_unrecorded(*on_its_machine(trial, self._drawn(trial)))
            for trials in work.rounds:
                rounds.run(trials, run)
            return rounds, list(session.finish())

    def _episode(self, session: Session, trial: Trial) -> Conditions:
        return session.run_episode(*on_its_machine(trial, self._drawn(trial)))

    def _outcome(self, episode: Episode, work: Work) -> Outcome:
        planned = next(
            it
            for round_ in work.rounds
            for it in round_
            if it.stem == episode.trial.stem
        )
        drawn = self._drawn(planned)
        return Outcome(
            trial=replace(planned, attempt=episode.trial.attempt),
            result=checked(episode.result, drawn),
            requests=episode.requests,
            samples=episode.samples,
            trace=stored(drawn) if planned.stem in work.with_trace else None,
            trace_sha256=drawn.sha256,
            trace_requests=len(drawn),
            started=episode.started,
            seconds=episode.seconds,
            load_average=episode.result.machine["load_average"],
        )

    def _failed(self, trial: Trial, work: Work, failure: RunFailed) -> Outcome:
        """Return the outcome of a trial whose session failed."""
        drawn = self._drawn(trial)
        return Outcome(
            trial=trial,
            result=RunResult.without_rows(str(failure), drawn),
            requests=None,
            samples=None,
            trace=stored(drawn) if trial.stem in work.with_trace else None,
            trace_sha256=drawn.sha256,
            trace_requests=len(drawn),
            started=now(),
            seconds=0.0,
            load_average=os.getloadavg()[0],
        )


def attempt(world: str, work: Work) -> Answer:
    """Run work in a process started for it."""
    runner = _runner(world)
    try:
        return runner.run(work, lambda trial: None)
    except (WorldError, ExperimentError) as error:
        return Failure(message=str(error), ours=False)
    except (OSError, MemoryError) as error:
        # Usually a full disk: no fault of the code that a trace would explain.
        message = f"{type(error).__name__}: {error}".removesuffix(": ")
        return Failure(message=f"{runner.run_id}: {message}", ours=False)
    except Exception:
        # Sent as text, because not every exception can be pickled; `expect` raises it.
        message = f"{runner.run_id}: {traceback.format_exc()}"
        return Failure(message=message, ours=True)


@functools.cache
def _runner(world: str) -> UnitRunner:
    """Return this process's runner, which may hold the next trial's trace."""
    return UnitRunner(make_world(world, lambda: None))


def _marked(outcome: Outcome, rounds: Rounds) -> Outcome:
    """Return the outcome, marked as invalid if it or its round was discarded.

    A run that failed for another reason states that reason first.
    """
    discarded = rounds.discarded.get(outcome.trial.run_id)
    if discarded is None:
        return outcome
    own = outcome.result.reason
    reasons = [discarded] if not own or own in discarded else [own, discarded]
    result = replace(outcome.result, valid=False, reason="; ".join(reasons))
    return replace(outcome, result=result)
