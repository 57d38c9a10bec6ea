"""The units of work of an experiment: handed out, stored, and listed.

A unit is run together and stored at once: a session, if the experiment has sessions; a
block at a point, if its runs measure the machine; otherwise one trial. An interrupted
unit leaves no files and is run again as a whole. The runs of an arm in a unit share one
file.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.records import recording
from experiments.running.atomic_write import atomic_write
from experiments.running.manifest import Manifest
from experiments.running.progress import Watcher
from experiments.running.trace_store import TraceStore
from experiments.running.trials import KeyedTrial, Outcome, Work
from experiments.worlds.world import RunFiles, Trial, is_computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A trial without a valid run, and the reason of its last run.

    A session is valid or not as a whole; one of its trials stands for all.
    """

    point: str
    block: int
    arm: str
    reason: str


class Units:
    """The remaining units, see `running.executor.Todo`.

    In a world that measures the machine a session is complete if one of its rounds has
    a valid run of every arm. Otherwise the whole session is run again, because the
    processes of another invocation are another session.
    """

    def __init__(
        self,
        manifest: Manifest,
        traces: TraceStore,
        watcher: Watcher,
        trials: Sequence[KeyedTrial],
    ) -> None:
        self._manifest = manifest
        self._traces = traces
        self._watcher = watcher
        self._world = str(manifest.content["world"])
        self._keys = {it.trial.stem: it.key for it in trials}
        self._planned = [it.trial for it in trials]
        self._atomic = _in_sessions(trials) and not is_computed(self._world)
        self._waiting = deque(self._todo())

    def __len__(self) -> int:
        return sum(len(unit) for unit in self._waiting)

    def _todo(self) -> Iterator[list[Trial]]:
        """Yield the remaining trials of each unit."""
        for unit in self._units():
            left = [it for it in unit if not self._done(it)]
            if self._atomic:
                if any(self._complete(unit)):
                    continue
                left = unit
                self._manifest.supersede(self._keys[it.stem] for it in unit)
            if left:
                yield left

    def _units(self) -> Iterator[list[Trial]]:
        """Yield the trials of each unit, in the order of the plan."""
        if is_computed(self._world) and not _sessions_of(self._planned[0]):
            yield from ([trial] for trial in self._planned)
            return
        for _, unit in groupby(self._planned, lambda it: (it.point.name, it.session)):
            yield list(unit)

    def _done(self, trial: Trial) -> bool:
        return self._manifest.done(self._keys[trial.stem])

    def _complete(self, unit: Iterable[Trial]) -> Iterator[bool]:
        """Yield for each round of a unit whether all arms have a valid run."""
        for _, trials in groupby(unit, lambda it: it.block):
            yield all(map(self._done, trials))

    # ---- for the executor ---------------------------------------------------------

    def next(self) -> Work | None:
        """Return the next unit."""
        if not self._waiting:
            return None
        numbered = [
            replace(it, attempt=self._manifest.attempts(it))
            for it in self._waiting.popleft()
        ]
        return Work(
            rounds=tuple(tuple(it) for _, it in groupby(numbered, _round)),
            with_trace=frozenset(it.stem for it in numbered if self._traces.claim(it)),
        )

    def started(self, trial: Trial) -> None:
        """Record that a run begins."""
        self._watcher.started(trial)

    # ---- results --------------------------------------------------------------------

    def take(self, outcomes: Sequence[Outcome]) -> None:
        """Store the runs of a unit, and list them."""
        judged = [self._judged(each) for each in outcomes]
        for outcome in judged:
            self._traces.store(outcome)
        # All arms of a round share a trace, and its content has been stored.
        judged = [replace(each, trace=None) for each in judged]
        by_arm: dict[str, list[Outcome]] = {}
        for outcome in judged:
            by_arm.setdefault(outcome.trial.arm.name, []).append(outcome)
        files = {arm: self._store(of_arm) for arm, of_arm in by_arm.items()}
        for outcome in judged:
            trial, result = outcome.trial, outcome.result
            stored = files[trial.arm.name] if result.recorded else None
            self._manifest.add(outcome, result, self._keys[trial.stem], stored)
        self._manifest.save()
        for outcome in judged:
            self._watcher.ended(outcome.trial, outcome.result)

    def _judged(self, outcome: Outcome) -> Outcome:
        fault = self._traces.fault(outcome)
        if not fault or not outcome.result.valid:
            return outcome
        result = replace(outcome.result, valid=False, reason=fault)
        return replace(outcome, result=result)

    def _store(self, outcomes: Sequence[Outcome]) -> RunFiles | None:
        """Write the rows of an arm's runs atomically."""
        recorded = [each for each in outcomes if each.result.recorded]
        if not recorded:
            return None
        directory, first = self._manifest.directory, recorded[0]
        name = f"{first.trial.run_id}.parquet"
        if _sessions_of(first.trial):
            name = f"s{first.trial.session:03d}-{name}"
        files = RunFiles(
            requests=directory / "requests" / name,
            samples=directory / "samples" / name,
            attempts=None if first.attempts is None else directory / "attempts" / name,
        )
        _write([each.requests for each in recorded], files.requests)
        _write([each.samples for each in recorded], files.samples)
        if files.attempts is not None:
            _write([each.attempts for each in recorded], files.attempts)
        return files

    def missing(self) -> Iterator[Missing]:
        """Yield planned trials without a valid run."""
        for unit in self._units():
            if self._atomic and any(self._complete(unit)):
                continue
            left = [it for it in unit if not self._done(it)]
            for trial in left[:1] if self._atomic else left:
                yield Missing(
                    point=trial.point.name,
                    block=trial.block,
                    arm=trial.arm.name,
                    reason=self._manifest.last_reason(self._keys[trial.stem]),
                )


def _round(trial: Trial) -> tuple[str, int]:
    return trial.point.name, trial.block


def _sessions_of(trial: Trial) -> bool:
    return trial.experiment.sessions is not None


def _in_sessions(trials: Sequence[KeyedTrial]) -> bool:
    return _sessions_of(trials[0].trial)


def _write(contents: Sequence[bytes | pa.Table | None], path: Path) -> None:
    """Write the rows of some runs to one file."""
    with atomic_write(path) as partial:
        match contents:
            case [bytes(content)]:
                partial.write_bytes(content)
            case _:
                tables = [_table(content) for content in contents]
                recording.write(pa.concat_tables(tables), partial)


def _table(content: bytes | pa.Table | None) -> pa.Table:
    assert content is not None
    if isinstance(content, bytes):
        return pq.read_table(io.BytesIO(content))
    return content
