"""Rounds of episodes, session by session: handed out, stored, and stopped in time.

A round has a run of each arm, so there are thousands of runs; all runs of an arm in a
session share one file, and a session is listed in the manifest when its files are
whole. A run that did not count stays in the list with its reason, and the rounds go on:
what a spoiled round cost is another round.
"""

from __future__ import annotations

import io
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.design.worlds import WORLDS
from experiments.records import recording
from experiments.running import stopping
from experiments.running.drawings import Drawings
from experiments.running.manifest import Manifest
from experiments.running.progress import Watcher
from experiments.running.stopping import Rule
from experiments.running.trials import KeyedTrial, Outcome, Work
from experiments.running.whole_files import written_whole
from experiments.worlds.world import RunFiles, Trial


class Sessions:
    """The rounds to play, and what is done with their outcomes."""

    def __init__(
        self,
        manifest: Manifest,
        drawings: Drawings,
        watcher: Watcher,
        rule: Rule,
        trials: Sequence[KeyedTrial],
    ) -> None:
        self._manifest = manifest
        self._drawings = drawings
        self._watcher = watcher
        self._rule = rule
        self._keys = {it.trial.stem: it.key for it in trials}
        self._waiting = deque(it.trial for it in trials if not manifest.played(it.key))
        self._handed_out: list[Trial] = []
        self._outcomes: list[Outcome] = []
        self._over = False
        self._began_s = 0.0
        # What the last session took to begin and to end, with nothing played.
        self._idle_s = 0.0
        self._deadline = _deadline(trials[0].trial, manifest)
        self._take_up()

    def __len__(self) -> int:
        return 0 if self._over else len(self._waiting)

    def next(self) -> Work | None:
        """Hand out the next trial of this session, see `running.executor.Todo`."""
        if self._over or not self._waiting:
            return None
        trial = self._waiting[0]
        if self._handed_out:
            last = self._handed_out[-1]
            if _session(last) != _session(trial):
                return None
            if last.block != trial.block and self._late():
                return None
        else:
            self._began_s = time.monotonic()
        self._waiting.popleft()
        trial = replace(trial, attempt=self._manifest.attempts(trial))
        self._handed_out.append(trial)
        self._watcher.started(trial)
        return Work(trial=trial, with_trace=self._drawings.wanted(trial))

    def take(self, outcome: Outcome) -> None:
        """Keep a run; when it is the session's last, store them all and look."""
        fault = self._drawings.fault(outcome)
        if fault and outcome.result.valid:
            result = replace(outcome.result, valid=False, reason=fault)
            outcome = replace(outcome, result=result)
        self._drawings.store(outcome)
        self._outcomes.append(replace(outcome, trace=None))
        self._watcher.ended(outcome.trial, outcome.result)
        if sum(not each.superseded for each in self._outcomes) == len(self._handed_out):
            self._close()

    def _close(self) -> None:
        played_s = math.fsum(each.seconds for each in self._outcomes)
        # One that failed says nothing of what others take.
        if played_s:
            self._idle_s = max(0.0, time.monotonic() - self._began_s - played_s)
        arms = dict.fromkeys(each.trial.arm.name for each in self._outcomes)
        self._outcomes.sort(key=lambda each: each.trial.block)
        files = {name: self._store(name) for name in arms}
        for outcome in self._outcomes:
            key = self._keys[outcome.trial.stem]
            of_arm = files[outcome.trial.arm.name] if outcome.result.recorded else None
            self._manifest.add(outcome, outcome.result, key, of_arm)
        self._outcomes.clear()
        self._handed_out.clear()
        self._look()
        self._manifest.save()

    def _store(self, arm: str) -> RunFiles | None:
        """Write the session's rows of an arm, whole or not at all."""
        mine = [each for each in self._outcomes if each.trial.arm.name == arm]
        recorded = [each for each in mine if each.result.recorded]
        if not recorded:
            return None
        first = recorded[0].trial
        name = f"s{_session(first):03d}-{first.run_id}.parquet"
        directory = self._manifest.directory
        files = RunFiles(
            requests=directory / "requests" / name, samples=directory / "samples" / name
        )
        requests = [_table(each.requests) for each in recorded]
        _write(pa.concat_tables(requests), files.requests)
        samples = [_table(each.samples) for each in recorded]
        _write(pa.concat_tables(samples), files.samples)
        for table, outcome in zip(requests, recorded, strict=True):
            if outcome.result.valid:
                self._rule.add(table)
        return files

    def _look(self) -> None:
        # No session begins that would be idle for longer than it plays.
        late = self._late(ahead_s=2 * self._idle_s)
        look = self._rule.look(played_all=not self._waiting, late=late)
        self._manifest.content["looks"].append(look.content())
        self._over = look.decision != stopping.GO_ON

    def _late(self, ahead_s: float = 0.0) -> bool:
        if self._deadline is None:
            return False
        return time.monotonic() + ahead_s >= self._deadline

    def _take_up(self) -> None:
        """Show the rule the rounds of an experiment that is taken up again."""
        valid = {run["run_id"]: run for run in self._manifest.runs if run["valid"]}
        if not valid:
            return
        wanted = pa.array(list(valid))
        for file in dict.fromkeys(run["requests"] for run in valid.values()):
            table = pq.read_table(self._manifest.directory / file)
            known = pa.compute.is_in(table["run_id"].cast(pa.string()), wanted)
            self._rule.add(table.filter(known))
        look = self._rule.look(played_all=not self._waiting, late=False)
        self._over = look.decision != stopping.GO_ON


def _session(trial: Trial) -> int:
    assert trial.experiment.episodes is not None
    return trial.experiment.episodes.session_of(trial.block)


def _deadline(trial: Trial, manifest: Manifest) -> float | None:
    """Return when the time is up; None in a world where the clock decides nothing."""
    world = WORLDS.get(manifest.content["world"])
    if world is None or world.computed:
        return None
    assert trial.experiment.episodes is not None
    return time.monotonic() + 60 * trial.experiment.episodes.minutes


def _table(content: bytes | pa.Table | None) -> pa.Table:
    """Return an outcome's rows."""
    assert content is not None
    if isinstance(content, bytes):
        return pq.read_table(io.BytesIO(content))
    return content


def _write(table: pa.Table, path: Path) -> None:
    with written_whole(path) as partial:
        recording.write(table, partial)
