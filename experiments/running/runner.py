"""The order in which an experiment runs, and what it does when a run goes wrong.

A randomised complete block design at every point: each block draws one trace, replays
it to every arm, and shuffles the order of the arms from the seed, so that a drift of
the machine (heat, neighbours) falls on all arms alike; the points are shuffled within a
block for the same reason. A run that does not count (its generator was late, its broker
failed) is kept with the reason and repeated, and so is a block whose arms met machines
of different speed.

A trial's key is the hash of all that its rows depend on: configuration, trace, code. So
``resume`` repeats no trial that is done and every trial whose configuration or code has
changed since. Files get their final names only when they are whole. Executors run
trials; this process alone writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.design.capacity import drawable, on_machine
from experiments.design.config import Experiment, parse
from experiments.design.config_errors import ExperimentError, differences
from experiments.design.points import Point, points
from experiments.load.size import refuse_oversize
from experiments.records.cost_ratio import DRIFTED
from experiments.records.environment import code_sha256, memory_bytes
from experiments.running import speed
from experiments.running.drawings import Drawings
from experiments.running.executor import Executor
from experiments.running.manifest import Manifest
from experiments.running.progress import Watcher
from experiments.running.sessions import Sessions
from experiments.running.stopping import HalfWidth, Rule
from experiments.running.trials import KeyedTrial, Outcome, Work, trial_key
from experiments.running.whole_files import written_whole
from experiments.worlds.world import RunFiles, Trial, World, WorldError


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A trial without a run that counts, and why its last run did not."""

    point: str
    block: int
    arm: str
    reason: str


def plan(found: Sequence[Point]) -> Iterator[Trial]:
    """Yield the trials of all points in the order in which they run, block by block."""
    header = found[0].experiment.experiment
    for block in range(header.blocks):
        shuffled = list(found)
        random.Random(f"{header.seed}/{block}/points").shuffle(shuffled)
        for point in shuffled:
            yield from _block(point, block)


def _block(point: Point, block: int) -> Iterator[Trial]:
    """Yield a block's trials at one point, the arms in an order of its own."""
    experiment = point.experiment
    prefix = "" if point.number is None else f"p{point.number:03d}-"
    arms = list(experiment.all_arms())
    seed = experiment.experiment.seed
    random.Random(f"{prefix}{seed}/{block}/order").shuffle(arms)
    for order, arm in enumerate(arms):
        yield Trial(
            experiment=experiment,
            point=point.name,
            prefix=prefix,
            block=block,
            arm=arm,
            order=order,
            stretch=point.stretch,
        )


def _keys_of(trials: Sequence[Trial], world: str, code: str) -> list[str]:
    """Return the key of every trial.

    A factor may leave an arm as it is. Its trials at two points then depend on the same
    and have the same rows, but each point has runs of its own: such trials are told
    apart by their number.
    """
    seen: Counter[str] = Counter()
    keys = []
    for trial in trials:
        key = trial_key(trial, world, code)
        copy = seen[key]
        seen[key] += 1
        if copy:
            key = hashlib.sha256(f"{key}/{copy}".encode()).hexdigest()
        keys.append(key)
    return keys


def run(
    experiment: Experiment,
    directory: Path,
    world: World,
    executor: Executor,
    watcher: Watcher,
    *,
    resume: bool,
    half_width: HalfWidth | None = None,
) -> list[Missing]:
    """Run every trial that is not done; return those that have no run that counts.

    ``half_width`` is what the sequential rule of episodes measures intervals by; only
    they need it. Of them nothing is missing that the rule did not ask for.

    :raises ExperimentError: if the directory holds an experiment and ``resume`` is off,
        or holds another experiment, or if the cost of some load is not known.
    :raises experiments.running.trials.TrialFailed: if a trial raised in another
        process.
    :raises Drifted: if the machine is no longer the one that was calibrated.
    :raises experiments.worlds.world.WorldError: if no trial can run.
    """
    found = points(experiment)
    for point in found:
        refuse_oversize(drawable(point.experiment), memory_bytes())
    manifest = _open(experiment, found, directory, world, resume=resume)
    manifest.content["executor"] = executor.name
    trials = list(plan(found))
    keys = _keys_of(trials, world.name, code_sha256())
    drawings = Drawings(
        directory, found, manifest.content["traces"], manifest.content["code"]["sha256"]
    )
    manifest.content["traces"] = drawings.entries
    keyed = [KeyedTrial(*it) for it in zip(trials, keys, strict=True)]
    manifest.plan(keyed)
    manifest.save()
    todo: _Todo | Sessions
    if experiment.episodes is None:
        todo = _Todo(manifest, drawings, watcher, keyed)
    else:
        assert half_width is not None, "episodes end by the width of intervals"
        rule = Rule(experiment, manifest.content["window_ns"][0], half_width)
        todo = Sessions(manifest, drawings, watcher, rule, keyed)
    seconds = [world.estimate_s(on_machine(it.experiment, it.stretch)) for it in found]
    watcher.planned(len(todo), sum(seconds) / len(seconds), executor.lanes)
    with contextlib.closing(executor.outcomes(todo)) as outcomes:
        for outcome in outcomes:
            todo.take(outcome)
    manifest.finish()
    manifest.save()
    return [] if experiment.episodes else list(_missing(manifest, keyed))


def _missing(manifest: Manifest, trials: Iterable[KeyedTrial]) -> Iterator[Missing]:
    """Yield the trials that have no run that counts."""
    for trial, key in trials:
        if not manifest.done(key):
            yield Missing(
                point=trial.point,
                block=trial.block,
                arm=trial.arm.name,
                reason=manifest.last_reason(key),
            )


class Drifted(WorldError):
    """Again and again requests cost something else than when they were calibrated."""


class _Todo:
    """The trials to run, and what is done with their outcomes."""

    def __init__(
        self,
        manifest: Manifest,
        drawings: Drawings,
        watcher: Watcher,
        planned: Iterable[KeyedTrial],
    ) -> None:
        self._manifest = manifest
        self._drawings = drawings
        self._watcher = watcher
        self._waiting: deque[Trial] = deque()
        self._keys: dict[str, str] = {}
        self._tries: Counter[str] = Counter()
        self._blocks: dict[tuple[str, int], list[Trial]] = {}
        self._spoiled: Counter[tuple[str, int]] = Counter()
        for trial, key in planned:
            self._keys[trial.stem] = key
            self._blocks.setdefault((trial.point, trial.block), []).append(trial)
            if not manifest.done(key):
                self._waiting.append(trial)

    def __len__(self) -> int:
        return len(self._waiting)

    def next(self) -> Work | None:
        """Hand out the next trial, see `running.executor.Todo`."""
        if not self._waiting:
            return None
        trial = self._waiting.popleft()
        trial = replace(trial, attempt=self._manifest.attempts(trial))
        self._tries[trial.stem] += 1
        self._watcher.started(trial)
        return Work(trial=trial, with_trace=self._drawings.wanted(trial))

    def take(self, outcome: Outcome) -> None:
        """Store a run, list it, and have its trial repeated if it does not count."""
        trial, result = outcome.trial, outcome.result
        fault = self._drawings.fault(outcome)
        if fault and result.valid:
            result = replace(result, valid=False, reason=fault)
        self._drawings.store(outcome)
        files = _store(self._manifest.directory, outcome)
        self._manifest.add(outcome, result, self._keys[trial.stem], files)
        self._manifest.save()
        self._watcher.ended(trial, result)
        retries = trial.experiment.limits.retries
        if not result.valid and self._tries[trial.stem] <= retries:
            self._waiting.appendleft(trial)
        elif DRIFTED in result.reason:
            raise Drifted(f"{trial.run_id}: {result.reason}")
        elif result.valid and result.probes_ns:
            self._gate(trial)

    def _gate(self, trial: Trial) -> None:
        """Have a block repeated that is whole and whose arms met different machines.

        Only the probe's times decide.
        """
        limits, place = trial.experiment.limits, (trial.point, trial.block)
        probes_ns = self._manifest.probes_ns(*place)
        if len(probes_ns) < len(self._blocks[place]):
            return
        reason = speed.fault(probes_ns, limits.speed_band)
        if not reason:
            return
        self._manifest.spoil(*place, reason)
        self._manifest.save()
        self._watcher.spoiled(trial, len(probes_ns), reason)
        self._spoiled[place] += 1
        if self._spoiled[place] <= limits.retries:
            again = self._blocks[place]
            self._waiting.extendleft(reversed(again))
            for each in again:
                self._tries[each.stem] = 0


def refuse_taken(
    directory: Path, experiment: Experiment, *, resume: bool
) -> Manifest | None:
    """Return the manifest of a directory that may be gone on with, if it has one.

    :raises ExperimentError: if the directory holds an experiment and ``resume`` is off,
        or holds another experiment.
    """
    old = Manifest.load(directory)
    if old is None:
        return None
    if not resume:
        raise ExperimentError(
            str(directory), "holds an experiment; give --resume, or another --out"
        )
    if old.content["name"] != experiment.name:
        raise ExperimentError(
            str(directory), f"holds the experiment {old.content['name']!r}"
        )
    return old


def _open(
    experiment: Experiment,
    found: Sequence[Point],
    directory: Path,
    world: World,
    *,
    resume: bool,
) -> Manifest:
    """Make a new manifest, or take up the one that is there."""
    fresh = Manifest.new(directory, experiment, found, world.environment())
    old = refuse_taken(directory, experiment, resume=resume)
    if old is None:
        return fresh
    _refuse_edited(old, experiment)
    fresh.content["created"] = old.content["created"]
    fresh.content["runs"] = old.runs
    fresh.content["traces"] = old.content["traces"]
    fresh.content["looks"] = old.content["looks"]
    return fresh


def _refuse_edited(old: Manifest, experiment: Experiment) -> None:
    """Refuse to go on with a config under which recorded trials would be others.

    More blocks, arms or points, and all that only the analysis reads, may be changed.
    A calibration that changed, or code, repeats trials; the same is assumed of both.

    :raises ExperimentError: naming the differences.
    """
    if not old.runs:
        return
    where, content = str(old.directory), old.content["config"]
    try:
        before = parse(content).model_copy(update={"machine": experiment.machine})
    except ExperimentError as error:
        raise ExperimentError(
            where, f"was recorded with a config that is read no more ({error})"
        ) from error
    recorded, now = (
        set(_keys_of(list(plan(points(each))), each.experiment.world, ""))
        for each in (before, experiment)
    )
    if not recorded <= now:
        edits = "; ".join(differences(content, experiment.content()))
        raise ExperimentError(
            where,
            f"was recorded with another config ({edits}); undo that, or give another "
            "--out: what was recorded stays as it is",
        )


def _store(directory: Path, outcome: Outcome) -> RunFiles | None:
    """Write a run's files, whole or not at all; return their names, if it has any."""
    if outcome.requests is None or outcome.samples is None:
        return None
    assert isinstance(outcome.requests, bytes)
    assert isinstance(outcome.samples, bytes)
    name = f"{outcome.trial.run_id}.parquet"
    files = RunFiles(
        requests=directory / "requests" / name,
        samples=directory / "samples" / name,
        attempts=directory / "attempts" / name if outcome.attempts else None,
    )
    for path, content in (
        (files.requests, outcome.requests),
        (files.samples, outcome.samples),
        (files.attempts, outcome.attempts),
    ):
        if path is None:
            continue
        assert content is not None
        with written_whole(path) as partial:
            partial.write_bytes(content)
    return files
