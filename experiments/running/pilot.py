"""Number of sessions for a wanted precision, from the sessions of a pilot.

The value of a session is the log ratio of an arm's configured quantile to that of the
baseline, both pooled over the rounds of the session. With a standard deviation s of
these values over n0 pilot sessions, the interval of the mean over n sessions has a
half-width of at most d if

    n >= (t * s / d)^2,    t = the 1 - alpha/2 quantile of Student's t at n0 - 1

(Stein 1945, "A two-sample test for a linear hypothesis whose power is independent of
the variance", Annals of Mathematical Statistics 16, 243-258). Because t belongs to the
pilot's degrees of freedom, the bound holds for an estimated s. A precision of 10 % is
d = log(1.1). The experiment takes the largest number that any arm needs.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.stats import t as student

from experiments.design.config_errors import ExperimentError

# Fewer sessions do not determine a standard deviation.
_SESSIONS_MIN: Final = 3
_COLUMNS: Final = ("run_id", "class", "intended_ns", "client_done_ns", "outcome")
Latencies = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """Standard deviation of an arm's log ratio in the pilot, and sessions needed."""

    arm: str
    pilot_sessions: int
    deviation: float
    sessions: int


def sessions_needed(
    directory: Path, precision: float, alpha: float
) -> tuple[Needed, ...]:
    """Return the number of sessions that each arm needs, from a pilot's recording.

    :raises ExperimentError: if the directory holds no usable pilot.
    """
    path = directory / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        values = _values(directory, manifest)
        baseline = manifest["baseline"]
        rivals = [it["name"] for it in manifest["arms"] if it["again_of"] is None]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExperimentError(str(path), f"no pilot can be read: {error}") from error
    return tuple(
        _needed(directory, arm, values[arm], values[baseline], precision, alpha)
        for arm in rivals
        if arm != baseline
    )


def sessions_for(logs: Sequence[float], precision: float, alpha: float) -> int:
    """Return the number of sessions for a precision, from the pilot's log ratios."""
    t = float(student.ppf(1 - alpha / 2, len(logs) - 1))
    needed = (t * statistics.stdev(logs) / math.log1p(precision)) ** 2
    return max(2, math.ceil(needed))


def _needed(
    directory: Path,
    arm: str,
    values: Mapping[int, float],
    baseline: Mapping[int, float],
    precision: float,
    alpha: float,
) -> Needed:
    logs = [
        math.log(values[session] / baseline[session])
        for session in sorted(values.keys() & baseline.keys())
    ]
    if len(logs) < _SESSIONS_MIN:
        raise ExperimentError(
            str(directory),
            f"arm {arm!r} has {len(logs)} sessions with a finite quantile; a pilot "
            f"needs {_SESSIONS_MIN}",
        )
    return Needed(
        arm=arm,
        pilot_sessions=len(logs),
        deviation=statistics.stdev(logs),
        sessions=sessions_for(logs, precision, alpha),
    )


def _values(
    directory: Path, manifest: Mapping[str, Any]
) -> dict[str, dict[int, float]]:
    """Return the configured quantile by arm and session, if it is finite.

    Only rounds with a valid run of every arm count.
    """
    arms = {it["name"] for it in manifest["arms"]}
    valid = [run for run in manifest["runs"] if run["valid"]]
    complete = {
        block
        for block in {run["block"] for run in valid}
        if {run["arm"] for run in valid if run["block"] == block} >= arms
    }
    files: dict[tuple[str, int], dict[str, list[str]]] = {}
    for run in valid:
        if run["block"] in complete:
            of_cell = files.setdefault((run["arm"], run["session"]), {})
            of_cell.setdefault(run["requests"], []).append(run["run_id"])
    level = Fraction(repr(manifest["sessions"]["quantile"]))
    found: dict[str, dict[int, float]] = {arm: {} for arm in arms}
    for (arm, session), runs in files.items():
        pooled = [
            _latencies(directory / file, run_ids, manifest)
            for file, run_ids in runs.items()
        ]
        value = _quantile(np.concatenate(pooled), level)
        if math.isfinite(value):
            found[arm][session] = value
    return found


def _latencies(
    path: Path, run_ids: Sequence[str], manifest: Mapping[str, Any]
) -> Latencies:
    """Return the latencies of the configured class in some runs of a file.

    An unanswered request has an infinite latency.
    """
    start_ns, end_ns = manifest["window_ns"]
    rows = pq.read_table(path, columns=list(_COLUMNS))
    intended = rows["intended_ns"]
    kept = pc.and_(
        pc.and_(
            pc.equal(rows["class"], manifest["sessions"]["primary"]),
            pc.is_in(rows["run_id"].cast(pa.string()), pa.array(run_ids)),
        ),
        pc.and_(pc.greater_equal(intended, start_ns), pc.less(intended, end_ns)),
    )
    rows = rows.filter(kept)
    done_ns = rows["client_done_ns"].fill_null(0).to_numpy()
    good = pc.equal(rows["outcome"], "ok").to_numpy()
    latency = done_ns - rows["intended_ns"].to_numpy()
    return np.where(good, latency, math.inf).astype(np.float64)


def _quantile(latencies: Latencies, level: Fraction) -> float:
    """Return the nearest-rank quantile; infinite without values."""
    if not len(latencies):
        return math.inf
    rank = math.ceil(level * len(latencies))
    return float(np.partition(latencies, rank - 1)[rank - 1])
