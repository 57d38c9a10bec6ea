"""The manifest of an experiment: what was meant to run, and what did.

One JSON file, replaced as a whole after every run, so a killed experiment leaves the
manifest of its last finished run. A run is listed only after its files have their final
names. Runs that did not count stay in the list with the reason.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.config import Experiment
from experiments.environment import code, environment
from experiments.points import Point, factors
from experiments.worlds.world import Cell, RunFiles, RunResult

SCHEMA = 1
FILE = "manifest.json"


class Manifest:
    """``manifest.json`` of one directory, in memory and on disk."""

    def __init__(self, directory: Path, content: dict[str, Any]) -> None:
        self.directory = directory
        self.content = content

    @classmethod
    def new(
        cls,
        directory: Path,
        experiment: Experiment,
        points: Sequence[Point],
        surroundings: Mapping[str, Any],
    ) -> Manifest:
        """Describe an experiment that has not begun.

        ``surroundings`` is what its world adds to the environment.
        """
        header = experiment.experiment
        content = {
            "schema": SCHEMA,
            "name": header.name,
            "title": header.title,
            "world": header.world,
            "seed": header.seed,
            "blocks": header.blocks,
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
                    "classes": _classes(point.experiment),
                    "window_ns": _window_ns(point.experiment),
                }
                for point in points
            ],
            "classes": _classes(experiment),
            "window_ns": _window_ns(experiment),
            "analysis": experiment.analysis.model_dump(mode="json"),
            "config": experiment.content(),
            "config_sha256": experiment.sha256(),
            "code": code(),
            "environment": {**environment(), **surroundings},
            "traces": [],
            "plan": [],
            "runs": [],
        }
        return cls(directory, content)

    @classmethod
    def load(cls, directory: Path) -> Manifest | None:
        """Read a directory's manifest; None if it has none."""
        path = directory / FILE
        if not path.exists():
            return None
        return cls(directory, json.loads(path.read_text(encoding="utf-8")))

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Return every run so far, valid or not."""
        runs: list[dict[str, Any]] = self.content["runs"]
        return runs

    def save(self) -> None:
        """Replace the file, whole or not at all."""
        self.directory.mkdir(parents=True, exist_ok=True)
        partial = self.directory / (FILE + ".partial")
        partial.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        os.replace(partial, self.directory / FILE)

    def done(self, key: str) -> bool:
        """Say whether a cell has a run that counts."""
        return any(run["cell"] == key and run["valid"] for run in self.runs)

    def attempts(self, cell: Cell) -> int:
        """Count the runs of a cell, whatever became of them."""
        return sum(run["run_id"].startswith(cell.stem) for run in self.runs)

    def supersede(self, points: Mapping[str, str]) -> None:
        """Take runs of other cells than these out of the count: they are stale.

        ``points`` has the point of every cell by its key: points that were renamed, or
        have another number since, keep their runs.
        """
        for run in self.runs:
            if run["cell"] in points:
                run["point"] = points[run["cell"]]
            elif run["valid"]:
                run["valid"] = False
                run["reason"] = "superseded: the experiment or the code has changed"

    def add(
        self,
        cell: Cell,
        key: str,
        result: RunResult,
        files: RunFiles | None,
        *,
        started: str,
        seconds: float,
        load_average: float,
    ) -> None:
        """List a run that is over. ``files`` are its final names, if it has any."""
        details = dataclasses.asdict(result)
        recorded = details.pop("recorded")
        assert recorded == (files is not None)
        self.runs.append(
            {
                "run_id": cell.run_id,
                "cell": key,
                "point": cell.point,
                "block": cell.block,
                "arm": cell.arm.name,
                "scheduler": cell.arm.scheduler,
                "order": cell.order,
                "attempt": cell.attempt,
                "requests": self._relative(files.requests) if files else None,
                "samples": self._relative(files.samples) if files else None,
                "started": started,
                "seconds": round(seconds, 3),
                "load_average": round(load_average, 2),
                **details,
            }
        )

    def finish(self) -> None:
        """Note that every cell has had its runs."""
        self.content["finished"] = now()

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.directory).as_posix()


def _window_ns(experiment: Experiment) -> list[int]:
    """Return between which instants requests are analysed."""
    workload = experiment.workload
    return [round(s * 1e9) for s in (workload.warmup_s, workload.duration_s)]


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
        described["offered_per_s"] += entry.arrivals.mean_rate_per_s() * share
    return list(found.values())


def now() -> str:
    """Return the time of day in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
