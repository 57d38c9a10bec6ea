"""The order of an experiment's runs, and its continuation after an interruption.

A randomised complete block design at every point: each block draws one trace, replays
it to every arm, and shuffles the order of the arms from the seed. A drift of the
machine (heat, neighbours) therefore affects all arms alike. Points are shuffled within
a session for the same reason. The blocks of a session are its rounds.

A trial's key is the hash of all inputs of its rows: configuration, trace, code.
``resume`` therefore repeats no completed trial, and repeats every trial whose
configuration or code has changed. The number of sessions is planned before the first
run. A run directory that is continued with more of them is marked as exploratory,
because the decision to continue may depend on its results. Executors run trials; only
this process writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from experiments.design.config import Arm, Experiment, parse
from experiments.design.config_errors import ExperimentError, differences
from experiments.design.points import PlannedPoint, planned_points
from experiments.load.size import refuse_oversize
from experiments.records.environment import code_sha256, memory_bytes
from experiments.running.executor import Executor
from experiments.running.manifest import Manifest
from experiments.running.progress import Watcher
from experiments.running.trace_store import TraceStore
from experiments.running.trials import KeyedTrial, trial_key
from experiments.running.units import Missing, Units
from experiments.worlds.world import Trial, World


def plan(found: Sequence[PlannedPoint]) -> Iterator[Trial]:
    """Yield the trials of all points in the order of their runs.

    Sessions follow each other. The rounds of a session at one point are adjacent,
    because they share processes. Without ``[sessions]`` a session is a block.
    """
    experiment = found[0].experiment
    seed = experiment.experiment.seed
    blocks = range(experiment.blocks)
    for session, rounds in groupby(blocks, experiment.session_of):
        adjacent, shuffled = list(rounds), list(found)
        random.Random(f"{seed}/{session}/points").shuffle(shuffled)
        for point in shuffled:
            for block in adjacent:
                arms = arms_in_order(point.experiment, block, point.prefix)
                for order, arm in enumerate(arms):
                    yield Trial(point=point, block=block, arm=arm, order=order)


def arms_in_order(experiment: Experiment, block: int, prefix: str = "") -> list[Arm]:
    """Return the arms of a block at one point, in a shuffled order."""
    arms = list(experiment.all_arms())
    seed = experiment.experiment.seed
    random.Random(f"{prefix}{seed}/{block}/order").shuffle(arms)
    return arms


def _keys_of(trials: Sequence[Trial], world: str, code: str) -> list[str]:
    """Return the key of every trial.

    A factor may leave an arm unchanged. Its trials at two points then have the same
    inputs and the same rows, but each point has its own runs: a number distinguishes
    their keys.
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
) -> list[Missing]:
    """Run every trial that is not complete; return trials without a valid run.

    :raises ExperimentError: if the directory holds an experiment and ``resume`` is off,
        or holds another experiment, or if the cost of some load is not known.
    :raises experiments.running.trials.TrialFailed: if a trial raised in another
        process.
    :raises experiments.worlds.world.WorldError: if no trial can run.
    """
    found = planned_points(experiment)
    for point in found:
        refuse_oversize(point.experiment, memory_bytes())
    manifest = _open(experiment, found, directory, world, resume=resume)
    manifest.content["executor"] = executor.name
    trials = list(plan(found))
    keys = _keys_of(trials, world.name, code_sha256())
    traces = TraceStore(
        directory, found, manifest.content["traces"], manifest.content["code"]["sha256"]
    )
    manifest.content["traces"] = traces.entries
    keyed = [KeyedTrial(*it) for it in zip(trials, keys, strict=True)]
    stale = manifest.plan(keyed)
    manifest.save()
    todo = Units(manifest, traces, watcher, keyed)
    seconds = [world.estimate_s(it.on_machine()) for it in found]
    watcher.planned(
        len(todo), sum(seconds) / len(seconds), lanes=executor.lanes, stale=stale
    )
    with contextlib.closing(executor.outcomes(todo)) as outcomes:
        for completed in outcomes:
            todo.take(completed)
    manifest.finish()
    manifest.save()
    return list(todo.missing())


def refuse_taken(
    directory: Path, experiment: Experiment, *, resume: bool
) -> Manifest | None:
    """Return the manifest of a directory that may be continued, if it has one.

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
    found: Sequence[PlannedPoint],
    directory: Path,
    world: World,
    *,
    resume: bool,
) -> Manifest:
    """Create a manifest, or continue the existing one."""
    fresh = Manifest.new(directory, experiment, found, world.environment())
    old = refuse_taken(directory, experiment, resume=resume)
    if old is None:
        return fresh
    _refuse_edited(old, experiment)
    fresh.content["created"] = old.content["created"]
    fresh.content["runs"] = old.runs
    fresh.content["traces"] = old.content["traces"]
    fresh.keep_plan_of(old)
    return fresh


def _refuse_edited(old: Manifest, experiment: Experiment) -> None:
    """Refuse to continue with a config that changes recorded trials.

    More blocks, arms or points are allowed, and changes that only the analysis reads. A
    changed calibration or code repeats trials.

    :raises ExperimentError: naming the differences.
    """
    if not old.runs:
        return
    where, content = str(old.directory), old.content["config"]
    try:
        before = parse(content).changed(machine=experiment.machine)
    except ExperimentError as error:
        raise ExperimentError(
            where, f"was recorded with a config that is read no more ({error})"
        ) from error
    recorded, now = (
        set(_keys_of(list(plan(planned_points(each))), each.experiment.world, ""))
        for each in (before, experiment)
    )
    if not recorded <= now:
        edits = "; ".join(differences(content, experiment.content()))
        raise ExperimentError(
            where,
            f"was recorded with another config ({edits}); undo that, or give another "
            "--out: the recording is not changed",
        )
