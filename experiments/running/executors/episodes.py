"""Rounds of episodes where all arms are alive: in turn, and again if they are spoiled.

After each episode the machine-speed gate (`experiments.running.round_of_arms`) says
which arm of the round is dealt next; what does not count is kept with the reason. What
the machine is in quiet, is remembered from session to session. If the processes of a
session fail, each of its trials is a failed run, and the next session starts anew.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from experiments.design.capacity import on_machine
from experiments.design.config import Experiment
from experiments.processes.children import RunFailed
from experiments.records.environment import now
from experiments.running.executor import Todo
from experiments.running.round_of_arms import RoundOfArms
from experiments.running.speed import QuietSpeed
from experiments.running.trials import (
    Deck,
    Outcome,
    Work,
    checked,
    on_its_machine,
    stored,
)
from experiments.worlds.episodes import Episode, EpisodicWorld, Session
from experiments.worlds.world import RunResult, Trial


@dataclass(slots=True)
class _Played:
    """What is known of a session while it goes on: its trials, and those spoiled."""

    works: list[Work] = field(default_factory=list)
    spoiled: dict[str, str] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)


class InEpisodes:
    """Plays the rounds that it is given in sessions of a world."""

    name = "episodes"
    lanes: int | None = 1

    def __init__(self, world: EpisodicWorld) -> None:
        self._world = world
        self._deck = Deck()
        self._quiet: QuietSpeed | None = None

    def outcomes(self, todo: Todo) -> Generator[Outcome, None, None]:
        """Run trials, see `Executor`; a session's outcomes come when it is over."""
        while (work := todo.next()) is not None:
            played = _Played()
            try:
                outcomes = self._session(work, todo, played)
            except RunFailed as failure:
                while (left := todo.next()) is not None:
                    played.works.append(left)
                outcomes = [self._failed(each, failure) for each in played.works]
            yield from outcomes

    def _session(self, work: Work, todo: Todo, played: _Played) -> list[Outcome]:
        played.works.append(work)
        experiment = on_machine(work.trial.experiment, work.trial.stretch)
        arms = len(experiment.all_arms())
        following: Work | None = work
        with self._world.session(experiment) as session:
            fresh = True
            while following is not None:
                round_ = [following]
                while len(round_) < arms:
                    other = todo.next()
                    assert other is not None, "a round has a run of every arm"
                    round_.append(other)
                    played.works.append(other)
                if fresh:
                    self._rehearse(round_, session)
                    fresh = False
                self._round(round_, session, played)
                following = todo.next()
                if following is not None:
                    played.works.append(following)
            works = {each.trial.stem: each for each in played.works}
            return [
                self._outcome(works[each.trial.stem], each, played)
                for each in session.finish()
            ]

    def _rehearse(self, round_: Sequence[Work], session: Session) -> None:
        for work in round_:
            session.rehearse(*on_its_machine(work.trial, self._deck.draw(work.trial)))

    def _round(self, round_: Sequence[Work], session: Session, played: _Played) -> None:
        """Play a round until it counts, or until there are no more tries."""
        first = round_[0].trial
        assert first.experiment.episodes is not None
        replayed = self._deck.draw(first)
        works = {work.trial.arm.name: work for work in round_}
        if self._quiet is None:
            self._quiet = _quiet(first.experiment)
        there = on_machine(first.experiment, first.stretch)
        gate = RoundOfArms(
            list(works),
            quiet=self._quiet,
            away_max_ns=round(there.limits.lateness_p99_ms * 1e6),
            tries=first.experiment.limits.retries + 1,
        )
        dealt: list[Trial] = []
        attempts: Counter[str] = Counter()
        while (arm := gate.next()) is not None:
            trial = works[arm].trial
            trial = replace(trial, attempt=trial.attempt + attempts[arm])
            attempts[arm] += 1
            dealt.append(trial)
            gate.add(arm, session.play(*on_its_machine(trial, replayed)))
        counting = gate.counting()
        # Of a round that is given up the last run of each trial is its outcome.
        final = [dealt[at] for at in counting] or _last_of_each(dealt)
        played.again.update({it.run_id for it in dealt} - {it.run_id for it in final})
        for at in set(range(len(dealt))) - set(counting):
            played.spoiled[dealt[at].run_id] = gate.fault(at)

    def _outcome(self, work: Work, episode: Episode, played: _Played) -> Outcome:
        drawn = self._deck.draw(work.trial)
        run_id = episode.trial.run_id
        result = checked(episode.result, drawn)
        if run_id in played.spoiled:
            reasons = [played.spoiled[run_id], result.reason]
            result = replace(
                result, valid=False, reason="; ".join(filter(None, reasons))
            )
        return Outcome(
            trial=replace(work.trial, attempt=episode.trial.attempt),
            result=result,
            requests=episode.requests,
            samples=episode.samples,
            trace=stored(drawn) if work.with_trace else None,
            trace_sha256=drawn.sha256,
            trace_requests=len(drawn),
            started=episode.started,
            seconds=episode.seconds,
            load_average=episode.result.machine["load_average"],
            superseded=run_id in played.again,
        )

    def _failed(self, work: Work, failure: RunFailed) -> Outcome:
        """Return the outcome of a trial whose session came to nothing."""
        drawn = self._deck.draw(work.trial)
        return Outcome(
            trial=work.trial,
            result=RunResult.without_rows(str(failure), drawn),
            requests=None,
            samples=None,
            trace=stored(drawn) if work.with_trace else None,
            trace_sha256=drawn.sha256,
            trace_requests=len(drawn),
            started=now(),
            seconds=0.0,
            load_average=os.getloadavg()[0],
        )


def _quiet(experiment: Experiment) -> QuietSpeed:
    """Return the gate of an experiment, which has seen no episode."""
    assert experiment.episodes is not None
    episodes = experiment.episodes
    return QuietSpeed(episodes.speed_band, slowest_band=episodes.slowest_band)


def _last_of_each(dealt: Sequence[Trial]) -> list[Trial]:
    """Return the last run of each trial."""
    return list({it.stem: it for it in dealt}.values())
