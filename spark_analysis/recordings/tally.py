"""One pass over all rows: count every run again, and distrust it.

Every compared run is counted from its rows and held against the manifest; all arms of a
block must have met the same requests, one by one; the phases of every answered request
must be there, not negative (but for two that end on the other process's stamp), and sum
to its latency, unless the brokers kept no rows. The same pass counts good answers and
adds up the phases, by class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_analysis.recordings.columns import OUTCOMES
from spark_analysis.recordings.contract import Manifest, RecordingError, Run
from spark_analysis.recordings.load import aggregates
from spark_analysis.recordings.phases import PHASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = Mapping[str, Any]

# Any answer is good where a class has no objective.
_FOREVER_NS: Final = "1e300D"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One class in one run, within the window: integers only.

    ``point_index`` is the number of the run's point in the manifest.
    """

    point_index: int
    class_name: str
    arm: str
    block: int
    counts: Mapping[str, int]
    good: int
    phase_sums_ns: Mapping[str, int]


def tally(requests: DataFrame, manifest: Manifest) -> tuple[Tally, ...]:
    """Return what each run did to each class, checked.

    :raises RecordingError: naming the first run that breaks the contract.
    """
    rows = (
        requests.groupBy("run_id", "point_index", "block", "arm", "class")
        .agg(*aggregates(_checks() | _values(manifest)))
        .toArrow()
        .to_pylist()
    )
    check(rows, manifest)
    inside = [row for row in rows if row["in_window"]]
    inside.sort(
        key=lambda row: (row["point_index"], row["class"], row["arm"], row["block"])
    )
    return tuple(
        Tally(
            point_index=row["point_index"],
            class_name=row["class"],
            arm=row["arm"],
            block=row["block"],
            counts={name: row[name] for name in OUTCOMES},
            good=row["good"],
            phase_sums_ns={phase.name: row[phase.name] for phase in PHASES},
        )
        for row in inside
    )


def check(rows: Sequence[Row], manifest: Manifest) -> None:
    """Hold one row per run and class against the manifest and against each other."""
    of_run: dict[str, list[Row]] = {}
    for row in rows:
        of_run.setdefault(row["run_id"], []).append(row)
    known = {
        point.name: {entry.name for entry in point.classes} for point in manifest.points
    }
    prints: dict[tuple[str, int], tuple[str, int]] = {}
    for run in manifest.runs_compared:
        found = of_run.get(run.run_id, [])
        strange = sorted({row["class"] for row in found} - known[run.point])
        if strange:
            raise RecordingError(
                f"run {run.run_id}: class {strange[0]!r} found, "
                f"the manifest knows {sorted(known[run.point])}"
            )
        _check_run(run, found, sound=manifest.brokers_recorded)
        print_of_all = 0
        for row in found:
            print_of_all ^= row["print"]
        first_run, first_print = prints.setdefault(
            (run.point, run.block), (run.run_id, print_of_all)
        )
        if print_of_all != first_print:
            raise RecordingError(
                f"runs {first_run} and {run.run_id} of block {run.block} "
                "did not meet the same requests"
            )


def _check_run(run: Run, rows: Sequence[Row], *, sound: bool) -> None:
    """Hold a run's rows against the manifest; ``sound`` if phases have to be there."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update({f"all_{name}": row[f"all_{name}"] for name in OUTCOMES})
        counts.update(sent=row["sent"], unsound=row["unsound"])
    found = {name: counts[f"all_{name}"] for name in OUTCOMES} | {
        "sent": counts["sent"]
    }
    expected = {name: run.counts[name] for name in found}
    if found != expected:
        raise RecordingError(
            f"{run.requests}: counts {found} found, the manifest says {expected}"
        )
    if sound and counts["unsound"]:
        raise RecordingError(
            f"{run.requests}: {counts['unsound']} answered requests whose phases are "
            "missing, negative, or do not sum to the latency"
        )


def _checks() -> dict[str, str]:
    """Return SQL over all rows of a run, the warm-up included."""
    whole = " + ".join(phase.name for phase in PHASES)
    signs = " AND ".join(
        f"{phase.name} >= 0" for phase in PHASES if not phase.crosses_processes
    )
    # A missing stamp makes a phase null, and with it the sum.
    sound = f"coalesce(double({whole}) = latency_ns AND {signs}, false)"
    return {
        **{f"all_{name}": f"count_if(outcome = '{name}')" for name in OUTCOMES},
        "sent": "count(*)",
        "print": "bit_xor(print)",
        "unsound": f"count_if(outcome = 'ok' AND NOT {sound})",
    }


def _values(manifest: Manifest) -> dict[str, str]:
    """Return SQL over the rows in the window."""
    return {
        **{name: f"count_if(outcome = '{name}' AND inside)" for name in OUTCOMES},
        "in_window": "count_if(inside)",
        "good": f"count_if(latency_ns <= {_slo(manifest)} AND inside)",
        **{
            p.name: f"sum(IF(outcome = 'ok' AND inside, coalesce({p.name}, 0), 0))"
            for p in PHASES
        },
    }


def _slo(manifest: Manifest) -> str:
    """Return SQL for the latency at which an answer still counts as good."""
    indices: dict[tuple[str, int], list[str]] = {}
    for index, point in enumerate(manifest.points):
        for entry in point.classes:
            if entry.slo_ns is not None:
                indices.setdefault((entry.name, entry.slo_ns), []).append(str(index))
    cases = "".join(
        f" WHEN class = '{name}' AND point_index IN ({', '.join(found)}) THEN {slo_ns}D"
        for (name, slo_ns), found in indices.items()
    )
    return f"CASE{cases} ELSE {_FOREVER_NS} END" if cases else _FOREVER_NS
