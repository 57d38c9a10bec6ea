"""The traces of an experiment: their files, and the check that all runs agree.

Points of a sweep with equal traffic replay the same traces, so a trace is stored once,
under the hash of its inputs. The first run of a trial that needs it returns it with its
rows; the experiment starts without drawing all traces in advance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.design.points import PlannedPoint
from experiments.running.atomic_write import atomic_write
from experiments.running.trials import Outcome, drawing_key
from experiments.worlds.world import Trial


class TraceStore:
    """The list ``traces`` in the manifest, and its files.

    ``known`` are the entries of an earlier manifest. Entries with the same experiment
    and code and an existing file are kept.
    """

    def __init__(
        self,
        directory: Path,
        points: Sequence[PlannedPoint],
        known: Sequence[Mapping[str, Any]],
        code: str,
    ) -> None:
        self._directory = directory
        self._code = code
        self._in_sweep = points[0].number is not None
        self._places: dict[str, list[tuple[str, int]]] = {}
        self._sha256: dict[str, str] = {}
        self._claimed: set[str] = set()
        self.entries: list[dict[str, Any]] = []
        for point in points:
            for block in range(point.experiment.blocks):
                drawing = drawing_key(point.experiment, block)
                self._places.setdefault(drawing, []).append((point.name, block))
        for entry in known:
            self._take_up(entry)

    def claim(self, trial: Trial) -> bool:
        """Return whether this trial should return its trace; True once per trace."""
        drawing = drawing_key(trial.experiment, trial.block)
        if drawing in self._claimed:
            return False
        self._claimed.add(drawing)
        return True

    def fault(self, outcome: Outcome) -> str:
        """Return an error if a run drew another trace than earlier runs, or "".

        This happens only if runs use different versions of Python or NumPy.
        """
        drawing = drawing_key(outcome.trial.experiment, outcome.trial.block)
        first = self._sha256.setdefault(drawing, outcome.trace_sha256)
        if first == outcome.trace_sha256:
            return ""
        return f"drew the trace {outcome.trace_sha256}, others drew {first}"

    def store(self, outcome: Outcome) -> None:
        """Store the trace that a run returned, and list it for all its blocks."""
        if outcome.trace is None:
            return
        drawing = drawing_key(outcome.trial.experiment, outcome.trial.block)
        path = self._path(drawing, outcome.trial.block)
        with atomic_write(path) as partial:
            partial.write_bytes(outcome.trace)
        self._list(drawing, outcome.trace_sha256, outcome.trace_requests)

    def _take_up(self, entry: Mapping[str, Any]) -> None:
        """Keep an entry of an earlier manifest, if its trace would be equal now."""
        drawing = entry.get("drawing", "")
        kept = (
            drawing in self._places
            and drawing not in self._claimed
            and entry["code"] == self._code
            and (self._directory / entry["file"]).exists()
        )
        if kept:
            self._claimed.add(drawing)
            self._sha256[drawing] = entry["sha256"]
            self._list(drawing, entry["sha256"], entry["requests"])

    def _list(self, drawing: str, sha256: str, requests: int) -> None:
        for point, block in self._places[drawing]:
            path = self._path(drawing, block)
            self.entries.append(
                {
                    "point": point,
                    "block": block,
                    "file": path.relative_to(self._directory).as_posix(),
                    "sha256": sha256,
                    "requests": requests,
                    "drawing": drawing,
                    "code": self._code,
                }
            )
        self.entries.sort(key=lambda entry: entry["block"])

    def _path(self, drawing: str, block: int) -> Path:
        name = f"{drawing[:16]}-" if self._in_sweep else ""
        return self._directory / "traces" / f"{name}block-{block:03d}.parquet"
