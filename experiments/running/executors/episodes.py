"""Rounds of episodes where all arms are alive: in turn, and again if they are spoiled.

After each episode the machine-speed gate looks at the times of a fixed loop around
those of the round so far. If they are too far apart the round is broken off and played
again, in the same order; what was played of the spoiled one is kept with the reason. A
session whose processes fail is a failed run for each of its trials, and the next
session starts anew.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from experiments.design.capacity import on_machine
from experiments.processes.children import RunFailed
from experiments.records.environment import now
from experiments.running import speed
from experiments.running.executor import Todo
from experiments.running.speed import ProbesNs
from experiments.running.trials import (
    Deck,
    Outcome,
    Work,
    checked,
    on_its_machine,
    stored,
)
from experiments.worlds.episodes import Episode, EpisodicWorld, Session
from experiments.worlds.world import RunResult


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
        """Play a round until the gate lets it pass, or there are no more tries."""
        first = round_[0].trial
        assert first.experiment.episodes is not None
        band = first.experiment.episodes.speed_band
        replayed = self._deck.draw(first)
        retries = first.experiment.limits.retries
        for repetition in range(retries + 1):
            last, fault = repetition == retries, ""
            probes_ns: dict[str, ProbesNs] = {}
            trials = []
            for work in round_:
                trial = replace(work.trial, attempt=work.trial.attempt + repetition)
                trials.append(trial)
                probes_ns[trial.arm.name] = session.play(
                    *on_its_machine(trial, replayed)
                )
                fault = speed.fault(probes_ns, band)
                # Every trial has a last run, whatever it is worth.
                if fault and not last:
                    break
            if not fault:
                return
            played.spoiled.update({trial.run_id: fault for trial in trials})
            if not last:
                played.again.update(trial.run_id for trial in trials)

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
