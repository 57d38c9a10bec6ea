"""Calibration by the load itself, where it comes in episodes.

In an episode a request costs something else than in light bursts: more wait at once,
and other brokers have been served since this one was. So a few rounds are played as the
experiment's will be, in sessions as long, stretched by what light bursts have guessed.
Costs are what the baseline's rows say (`bills`). The load is then what the config
writes, whatever the light bursts have missed. It is taken from episodes on the machine
in quiet, and how fast that is, is kept: it is the one on which episodes will count.

A policy and a reader use CPU, too: what requests cost under each other arm, over what
they cost under the baseline, is told by the same rows (`under_arms`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from experiments.design.calibration import Calibration
from experiments.design.capacity import on_machine
from experiments.design.config import Experiment
from experiments.design.points import points
from experiments.processes.children import RunFailed
from experiments.running.calibrating.bills import Bills, bills, by_bills
from experiments.running.calibrating.runs import UNDISTURBED, rounded
from experiments.running.calibrating.under_arms import Round, under_arms
from experiments.running.progress import Watcher
from experiments.running.runner import plan
from experiments.running.speed import QuietSpeed, loop_ns
from experiments.running.trials import Deck, on_its_machine
from experiments.worlds.episodes import Conditions, Episode, EpisodicWorld
from experiments.worlds.world import Trial, WorldError

ROUNDS: Final = 12


def calibrate_in_episodes(
    experiment: Experiment,
    guess: Calibration,
    world: EpisodicWorld,
    watcher: Watcher,
    estimate_s: float,
    *,
    rounds: int = ROUNDS,
) -> Calibration:
    """Measure what each traffic entry's requests cost in episodes.

    ``guess`` is what light bursts found; it stays for an entry of which no episode has
    a request. Live it takes about 2 s a round with eight arms.

    :raises WorldError: if the processes fail, or no episode says what it cost.
    """
    there = experiment.with_machine(guess)
    assert there.episodes is not None
    quiet = QuietSpeed(
        there.episodes.speed_band, slowest_band=there.episodes.slowest_band
    )
    deck = Deck()
    trials = list(_trials(there, rounds))
    watcher.planned(len(trials), estimate_s, 1)
    episodes = _in_quiet(trials, deck, world, watcher, quiet)
    billed = _billed(episodes, deck)
    baseline = experiment.experiment.baseline
    of_quiet = [each for by_arm in billed for each in by_arm.get(baseline, ())]
    if not of_quiet:
        raise WorldError(
            "calibration: no CPU time is known, nothing was served, or the machine "
            "was not in quiet in any episode of the baseline"
        )
    found = by_bills(guess, of_quiet)
    return found.model_copy(
        update={
            "arms": under_arms(billed, found.costs, baseline),
            "loop_us": rounded(quiet.loop_ns / 1000),
        }
    )


def _in_quiet(
    trials: Sequence[Trial],
    deck: Deck,
    world: EpisodicWorld,
    watcher: Watcher,
    quiet: QuietSpeed,
) -> list[Episode]:
    """Return the episodes that met the machine in quiet; say what quiet is."""
    met: list[Conditions] = []
    episodes: list[Episode] = []
    rules = trials[0].experiment.episodes
    assert rules is not None
    try:
        for _, session in groupby(trials, lambda it: rules.session_of(it.block)):
            machines, played = _played(list(session), deck, world, watcher)
            met += machines
            episodes += played
    except RunFailed as failure:
        raise WorldError(f"calibration: {failure}") from failure
    for each in met:
        quiet.add(loop_ns(each.probes_ns))
    return [
        episode
        for machine, episode in zip(met, episodes, strict=True)
        if episode.result.valid
        if not quiet.fault(loop_ns(machine.probes_ns), machine.slowest_ns)
    ]


def _billed(episodes: Sequence[Episode], deck: Deck) -> list[Round]:
    """Return what was billed in each round, by arm; the baseline's twin is as good."""
    rounds: dict[int, dict[str, list[Bills]]] = {}
    for episode in episodes:
        trial = episode.trial
        said = bills(
            episode.requests,
            deck.draw(trial).column("traffic"),
            episode.result.broker_cpu_s,
            on_machine(trial.experiment, trial.stretch).workload.warmup_s,
        )
        if said is not None:
            arm = trial.experiment.again_of(trial.arm) or trial.arm.name
            rounds.setdefault(trial.block, {}).setdefault(arm, []).append(said)
    return [rounds[block] for block in sorted(rounds)]


def _trials(experiment: Experiment, rounds: int) -> Iterator[Trial]:
    """Yield trials of rounds that the experiment does not have, in their order.

    Each arm as often as the others: one that is played more often has served more and
    meets other caches.
    """
    header = experiment.experiment
    another = {"blocks": rounds, "seed": header.seed + 1}
    changed = {
        "experiment": header.model_copy(update=another),
        "limits": experiment.limits.model_copy(update=UNDISTURBED),
    }
    return plan(points(experiment.model_copy(update=changed)))


def _played(
    trials: Sequence[Trial], deck: Deck, world: EpisodicWorld, watcher: Watcher
) -> tuple[list[Conditions], list[Episode]]:
    """Play a session's trials, in turn; return the machine of each, and its episode."""
    first = trials[0]
    with world.session(on_machine(first.experiment, first.stretch)) as session:
        for arm in {trial.arm.name: trial for trial in trials}.values():
            session.rehearse(*on_its_machine(arm, deck.draw(first)))
        met = []
        for trial in trials:
            watcher.started(trial)
            met.append(session.play(*on_its_machine(trial, deck.draw(trial))))
        return met, list(session.finish())
