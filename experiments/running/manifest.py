"""The manifest of an experiment: the plan, and the runs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from experiments.design.calibration import Calibration
from experiments.design.capacity import (
    calibration,
    describe,
    in_rates,
    on_machine,
    stretch,
)
from experiments.design.config import Experiment
from experiments.design.config_errors import ExperimentError
from experiments.design.points import PlannedPoint, factors
from experiments.records.environment import code, environment, now
from experiments.running.atomic_write import atomic_write
from experiments.running.trials import KeyedTrial, Outcome
from experiments.worlds.world import RunFiles, RunResult, Trial

SCHEMA = 1
FILE = "manifest.json"
# Keys that change between the runs of one experiment, besides the list of runs itself.
_CHANGING = ("traces", "finished")


class _RecordedRun(BaseModel):
    """The fields read from an earlier run's entry."""

    run_id: Annotated[str, Field(pattern=r"-t\d+$")]
    cell: str
    block: int
    arm: str
    valid: bool
    reason: str
    requests: str | None


class _RecordedTrace(BaseModel):
    """The fields read from an earlier trace's entry."""

    file: str
    sha256: str
    requests: int
    drawing: str = ""
    code: str


class _RecordedSessions(BaseModel):
    """The fields read from the plan of a started experiment."""

    planned: int


class _Recorded(BaseModel):
    """The fields read from a manifest to continue its experiment."""

    model_config = ConfigDict(strict=True)

    name: str
    created: str
    config: dict[str, Any]
    traces: list[_RecordedTrace]
    sessions: _RecordedSessions
    exploratory: bool
    runs: list[_RecordedRun]


class Manifest:
    """``manifest.json`` of one directory, in memory and on disk."""

    def __init__(self, directory: Path, content: dict[str, Any]) -> None:
        self.directory = directory
        self.content = content
        self._done: set[str] = set()
        self._attempts: Counter[str] = Counter()
        self._sections: dict[str, str] = {}
        self._run_lines: list[str] = []

    @classmethod
    def new(
        cls,
        directory: Path,
        experiment: Experiment,
        points: Sequence[PlannedPoint],
        surroundings: Mapping[str, Any],
    ) -> Manifest:
        """Describe an experiment that has not started.

        ``surroundings`` are its world's additions to the environment.
        """
        header = experiment.experiment
        on_machines = [it.on_machine() for it in points]
        base = on_machine(in_rates(experiment), stretch(experiment))
        content = {
            "schema": SCHEMA,
            "name": header.name,
            "title": header.title,
            "world": header.world,
            "seed": header.seed,
            "blocks": experiment.blocks,
            "sessions": _sessions(experiment),
            "exploratory": False,
            "baseline": header.baseline,
            "created": now(),
            "finished": None,
            "arms": [
                {**arm.model_dump(mode="json"), "again_of": experiment.again_of(arm)}
                for arm in experiment.all_arms()
            ],
            "factors": [
                {"name": name, "levels": levels}
                for name, levels in factors(points).items()
            ],
            "points": [
                {
                    "point": point.name,
                    "levels": dict(point.levels),
                    "classes": _classes(there),
                    "window_ns": _window_ns(there),
                    "costs": describe(point.experiment, point.stretch),
                    "nominal": _dumped(point.experiment.nominal),
                }
                for point, there in zip(points, on_machines, strict=True)
            ],
            "calibration": _calibration(experiment),
            "classes": _classes(base),
            "window_ns": _window_ns(base),
            "analysis": experiment.analysis.model_dump(mode="json"),
            "config": experiment.content(),
            "config_sha256": experiment.sha256(),
            "code": code(),
            "environment": {**environment(), **surroundings},
            "executor": None,
            "traces": [],
            "plan": [],
            "runs": [],
        }
        return cls(directory, content)

    @classmethod
    def load(cls, directory: Path) -> Manifest | None:
        """Read a directory's manifest; None if it has none.

        :raises ExperimentError: if it is damaged, so that no run can be added.
        """
        path = directory / FILE
        if not path.exists():
            return None
        try:
            text = path.read_text(encoding="utf-8")
            _Recorded.model_validate_json(text)
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            words = " ".join(str(error).split())
            raise ExperimentError(
                str(path), f"damaged, no manifest of an experiment: {words}"
            ) from error
        return cls(directory, content)

    def keep_plan_of(self, old: Manifest) -> None:
        """Keep the number of sessions that was planned before the first run.

        If more are planned now, the experiment is and stays exploratory.
        """
        planned = old.content["sessions"]["planned"]
        sessions = self.content["sessions"]
        if not old.runs:
            return
        more = sessions["planned"] > planned
        self.content["exploratory"] = old.content["exploratory"] or more
        sessions["planned"] = planned

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Return every run so far, valid or not."""
        runs: list[dict[str, Any]] = self.content["runs"]
        return runs

    def save(self) -> None:
        """Replace the file atomically.

        This happens after every run, so constant parts are encoded only once.
        """
        with atomic_write(self.directory / FILE) as partial:
            partial.write_text(self._text(), encoding="utf-8")

    def plan(self, trials: Iterable[KeyedTrial]) -> int:
        """Record the planned trials in their order, each with its key.

        The file calls the key ``cell``; names in recorded files do not change. Runs of
        other trials are stale and no longer counted; their number is returned. A point
        with a new name or number keeps its runs.
        """
        self.content["plan"] = [
            {
                "cell": key,
                "point": trial.point.name,
                "block": trial.block,
                "arm": trial.arm.name,
                "order": trial.order,
            }
            for trial, key in trials
        ]
        planned = {each["cell"]: each["point"] for each in self.content["plan"]}
        stale = 0
        for run in self.runs:
            if run["cell"] in planned:
                run["point"] = planned[run["cell"]]
            elif run["valid"]:
                stale += 1
                run["valid"] = False
                run["reason"] = "superseded: code, experiment or calibration changed"
            self._count(run)
        self._sections.clear()
        self._run_lines.clear()
        return stale

    def done(self, key: str) -> bool:
        """Return whether a trial has a valid run."""
        return key in self._done

    def attempts(self, trial: Trial) -> int:
        """Return the number of runs with a trial's name, with any outcome."""
        return self._attempts[trial.stem]

    def last_reason(self, key: str) -> str:
        """Return why the last run of a trial is not valid."""
        mine = [run for run in self.runs if run["cell"] == key]
        return str(mine[-1]["reason"])

    def add(
        self, outcome: Outcome, result: RunResult, key: str, files: RunFiles | None
    ) -> None:
        """Add a finished run. ``files`` are its final names, if it has any."""
        trial = outcome.trial
        details = dataclasses.asdict(result)
        recorded = details.pop("recorded")
        assert recorded == (files is not None)
        run = {
            "run_id": trial.run_id,
            "cell": key,
            "point": trial.point.name,
            "block": trial.block,
            "arm": trial.arm.name,
            "scheduler": trial.arm.scheduler,
            "order": trial.order,
            "attempt": trial.attempt,
            "session": trial.session,
            "requests": self._relative(files.requests) if files else None,
            "samples": self._relative(files.samples) if files else None,
            "attempts": self._relative(files.attempts)
            if files and files.attempts
            else None,
            "started": outcome.started,
            "seconds": round(outcome.seconds, 3),
            "load_average": round(outcome.load_average, 2),
            **details,
        }
        self.runs.append(run)
        self._count(run)

    def supersede(self, keys: Iterable[str]) -> None:
        """Discard the runs of trials whose session is repeated."""
        wanted = set(keys)
        for run in self.runs:
            if run["cell"] in wanted and run["valid"]:
                run["valid"], run["reason"] = False, "superseded: session run again"
                self._done.discard(run["cell"])
        self._run_lines.clear()

    def _count(self, run: Mapping[str, Any]) -> None:
        if run["valid"]:
            self._done.add(run["cell"])
        run_id = run["run_id"]
        self._attempts[run_id[: run_id.rindex("-t") + 2]] += 1

    def finish(self) -> None:
        """Record that all trials have run; sort them in planned order."""
        places = {each["cell"]: n for n, each in enumerate(self.content["plan"])}
        self.runs.sort(key=lambda run: places.get(run["cell"], -1))
        self._run_lines.clear()
        self.content["finished"] = now()

    def _text(self) -> str:
        """Return the manifest as JSON."""
        new = self.runs[len(self._run_lines) :]
        self._run_lines += [json.dumps(run) for run in new]
        for key, value in self.content.items():
            if key != "runs" and (key in _CHANGING or key not in self._sections):
                self._sections[key] = _encoded(value)
        sections = {**self._sections, "runs": _listed(self._run_lines)}
        lines = [f"{json.dumps(key)}: {text}" for key, text in sections.items()]
        return "{\n " + ",\n ".join(lines) + "\n}\n"

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.directory).as_posix()


def _encoded(value: Any) -> str:
    """Return a value as JSON, with each entry of a list on its own line."""
    if isinstance(value, list):
        return _listed([json.dumps(entry) for entry in value])
    return json.dumps(value)


def _listed(lines: list[str]) -> str:
    return "[\n  " + ",\n  ".join(lines) + "\n ]" if lines else "[]"


def _sessions(experiment: Experiment) -> dict[str, Any]:
    """Describe the sessions; without ``[sessions]`` a block is one of one round."""
    primary, quantile = experiment.primary
    sessions = experiment.sessions
    return {
        "planned": experiment.blocks if sessions is None else sessions.count,
        "rounds": 1 if sessions is None else sessions.rounds,
        "primary": primary,
        "quantile": quantile,
    }


def _window_ns(experiment: Experiment) -> list[int]:
    """Return the bounds of the window in which requests are analysed."""
    workload = experiment.workload
    return [round(s * 1e9) for s in (workload.warmup_s, workload.duration_s)]


def _calibration(experiment: Experiment) -> dict[str, Any] | None:
    """Return the costs behind loads and computed worlds, with their intervals."""
    return _dumped(calibration(experiment))


def _dumped(costs: Calibration | None) -> dict[str, Any] | None:
    return None if costs is None else costs.model_dump(mode="json")


def _classes(experiment: Experiment) -> list[dict[str, Any]]:
    """Describe the request classes in order of their first entry."""
    workload = experiment.workload
    found: dict[str, dict[str, Any]] = {}
    for entry in workload.traffic:
        described = found.setdefault(
            entry.reported_class,
            {
                "class": entry.reported_class,
                "apis": [],
                "slo_ns": None,
                "offered_per_s": 0.0,
            },
        )
        if entry.request.api not in described["apis"]:
            described["apis"].append(entry.request.api)
        if entry.slo_ms is not None:
            described["slo_ns"] = round(entry.slo_ms * 1e6)
        share = (workload.stop_of(entry) - entry.start_s) / workload.duration_s
        described["offered_per_s"] += workload.mean_rate_per_s(entry) * share
    return list(found.values())
