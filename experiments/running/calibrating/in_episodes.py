"""Calibration by the load itself, where it comes in episodes.

In an episode a request costs something else than in light bursts: more wait at once,
and other brokers have been served since this one was. So a few rounds are played as the
experiment's will be, stretched by what light bursts have guessed. An entry's cost is
what its rows were billed on average, and its part of what nobody was billed: the
baseline's CPU beyond all bills, over all requests. The load is then what the config
writes, whatever the light bursts have missed. Where a request met an idle broker, what
it took beyond its cost is the way there and back. It is taken from episodes on the
machine in quiet, and how fast that is, is kept: it is the one on which episodes will
count. Intervals are Student's t over episodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.design.calibration import Calibration
from experiments.design.capacity import on_machine
from experiments.design.config import Experiment
from experiments.design.points import points
from experiments.processes.children import RunFailed
from experiments.running.calibrating.runs import (
    CONFIDENCE,
    UNDISTURBED,
    cost,
    rounded,
    writing_us,
)
from experiments.running.progress import Watcher
from experiments.running.runner import plan
from experiments.running.speed import QuietSpeed, loop_ns
from experiments.running.trials import Deck, on_its_machine
from experiments.worlds.episodes import Episode, EpisodicWorld
from experiments.worlds.world import Trial, WorldError

ROUNDS: Final = 5
# Since the last answer, for a request to find the broker asleep.
_PAUSE_NS: Final = 300_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bills:
    """What a request of an episode was billed: by entry, for reading, and nobody.

    And what writing its answer took, and its way; None if none met an idle broker.
    """

    billed_us: dict[str, float]
    reading_us: float
    waking_us: float
    writing_us: float
    unbilled_us: float
    travel_us: float | None


def calibrate_in_episodes(
    experiment: Experiment,
    guess: Calibration,
    world: EpisodicWorld,
    watcher: Watcher,
    estimate_s: float,
) -> Calibration:
    """Measure what each traffic entry's requests cost in episodes.

    ``guess`` is what light bursts found; it stays for an entry of which no episode has
    a request. Live it takes about 20 s with eight arms.

    :raises WorldError: if the processes fail, or no episode says what it cost.
    """
    there = experiment.with_machine(guess)
    assert there.episodes is not None
    quiet = QuietSpeed(there.episodes.speed_band)
    bills = _in_quiet(there, world, watcher, estimate_s, quiet)
    if not bills:
        raise WorldError(
            "calibration: no CPU time is known, nothing was served, or the machine "
            "was not in quiet in any episode of the baseline"
        )
    travels_us = [it.travel_us for it in bills if it.travel_us is not None]
    return guess.model_copy(
        update={
            "costs": {
                name: cost(each_us) if each_us else guess.costs[name]
                for name, each_us in _costs_us(guess.costs, bills).items()
            },
            "unbilled_us": rounded(float(np.mean([it.unbilled_us for it in bills]))),
            "reading_us": rounded(float(np.mean([it.reading_us for it in bills]))),
            "waking_us": rounded(float(np.mean([it.waking_us for it in bills]))),
            "writing_us": rounded(float(np.mean([it.writing_us for it in bills]))),
            "travel_us": rounded(float(np.median(travels_us)))
            if travels_us
            else guess.travel_us,
            "loop_us": rounded(quiet.loop_ns / 1000),
            "confidence": CONFIDENCE,
        }
    )


def _costs_us(names: Iterable[str], bills: Sequence[_Bills]) -> dict[str, list[float]]:
    return {
        name: [
            it.billed_us[name] + it.unbilled_us for it in bills if name in it.billed_us
        ]
        for name in names
    }


def _in_quiet(
    there: Experiment,
    world: EpisodicWorld,
    watcher: Watcher,
    estimate_s: float,
    quiet: QuietSpeed,
) -> list[_Bills]:
    """Return the bills of the baseline's episodes in quiet; say what quiet is."""
    trials, deck = list(_trials(there)), Deck()
    watcher.planned(len(trials), estimate_s, 1)
    try:
        episodes = _played(trials, deck, world, watcher)
    except RunFailed as failure:
        raise WorldError(f"calibration: {failure}") from failure
    for episode in episodes:
        quiet.add(loop_ns(episode.result.probes_ns))
    found = [
        _bills(episode, deck.draw(episode.trial).column("traffic"))
        for episode in episodes
        if _is_baseline(episode.trial) and episode.result.valid
        if not quiet.fault(loop_ns(episode.result.probes_ns))
    ]
    return [each for each in found if each is not None]


def _trials(experiment: Experiment) -> Iterator[Trial]:
    """Yield trials of rounds that the experiment does not have, in their order.

    An episode of the baseline follows each of another arm: it meets the caches that it
    will meet, and most of the time goes to what is asked for.
    """
    header = experiment.experiment
    another = {"blocks": ROUNDS, "seed": header.seed + 1}
    changed = {
        "experiment": header.model_copy(update=another),
        "limits": experiment.limits.model_copy(update=UNDISTURBED),
    }
    trials = plan(points(experiment.model_copy(update=changed)))
    for _, of_round in itertools.groupby(trials, key=lambda trial: trial.block):
        baseline: list[Trial] = []
        others: list[Trial] = []
        for trial in of_round:
            (baseline if _is_baseline(trial) else others).append(trial)
        for attempt, other in enumerate(others):
            yield other
            yield replace(baseline[attempt % len(baseline)], attempt=attempt)


def _played(
    trials: Sequence[Trial], deck: Deck, world: EpisodicWorld, watcher: Watcher
) -> list[Episode]:
    """Play the trials, in turn; return what came of each."""
    first = trials[0]
    with world.session(on_machine(first.experiment, first.stretch)) as session:
        for arm in {trial.arm.name: trial for trial in trials}.values():
            session.rehearse(*on_its_machine(arm, deck.draw(first)))
        for trial in trials:
            watcher.started(trial)
            session.play(*on_its_machine(trial, deck.draw(trial)))
        return list(session.finish())


def _bills(episode: Episode, entries: Sequence[str]) -> _Bills | None:
    """Return what an episode's requests were billed, if its broker's CPU is known.

    ``entries`` are those of the trace's requests, by number.
    """
    cpu_s, rows = episode.result.broker_cpu_s, episode.requests
    rows = rows.filter(pc.equal(rows["outcome"], "ok"))
    if cpu_s is None or not len(rows):
        return None
    prior_us = rows["prior_ns"].to_numpy() / 1000
    billed_us = rows["service_ns"].to_numpy() / 1000 + prior_us
    entry = np.array([entries[number] for number in rows["request_id"].to_pylist()])
    pauses_ns = _pauses_ns(rows)
    alone, behind = pauses_ns >= _PAUSE_NS, pauses_ns < 0
    reading_us = float(prior_us[behind if behind.any() else ...].mean())
    waking_us = 0.0
    if alone.any() and behind.any():
        waking_us = max(0.0, float(prior_us[alone].mean()) - reading_us)
    # Rows may hold a wait for the CPU, which is nobody's cost.
    unbilled_us = max(0.0, cpu_s * 1e6 - float(billed_us.sum())) / len(rows)
    return _Bills(
        billed_us={
            str(name): float(billed_us[entry == name].mean())
            for name in np.unique(entry)
        },
        reading_us=reading_us,
        waking_us=waking_us,
        writing_us=min(writing_us(rows), unbilled_us),
        unbilled_us=unbilled_us,
        travel_us=_travel_us(rows, billed_us + unbilled_us, alone),
    )


def _pauses_ns(rows: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return how long the broker had been idle when each request was sent.

    Less than nothing if an earlier one was still unanswered.
    """
    sent_ns, done_ns = (rows[name].to_numpy() for name in ("sent_ns", "client_done_ns"))
    order = np.argsort(sent_ns)
    answered_ns = np.maximum.accumulate(done_ns[order])
    found = np.zeros(len(rows), np.int64)
    found[order[1:]] = sent_ns[order][1:] - answered_ns[:-1]
    return found


def _travel_us(
    rows: pa.Table,
    costs_us: np.ndarray[Any, np.dtype[np.float64]],
    alone: np.ndarray[Any, np.dtype[np.bool_]],
) -> float | None:
    """Return half of what requests that met an idle broker took beyond their cost."""
    if not alone.any():
        return None
    took_us = (rows["client_done_ns"].to_numpy() - rows["sent_ns"].to_numpy()) / 1000
    return max(0.0, float(np.median((took_us - costs_us)[alone])) / 2)


def _is_baseline(trial: Trial) -> bool:
    """Whether it is the baseline's; its twin, if there is one, is as good."""
    arm = trial.experiment.again_of(trial.arm) or trial.arm.name
    return arm == trial.experiment.experiment.baseline
