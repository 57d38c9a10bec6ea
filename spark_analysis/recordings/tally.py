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
from spark_analysis.recordings.load import aggregates, literal
from spark_analysis.recordings.phases import PHASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What the pass has found of one class in one run, by column.
Found = Mapping[str, Any]

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
    found: list[Found] = (
        requests.groupBy("run_id", "point_index", "block", "arm", "class")
        .agg(*aggregates(_checks() | _values(manifest)))
        .toArrow()
        .to_pylist()
    )
    check(found, manifest)
    inside = [it for it in found if it["in_window"]]
    if not inside:
        raise RecordingError(
            f"{manifest.directory}: no requests: the traces have none in the window "
            "that is analysed (rates of 0, or all before the warm-up's end)"
        )
    inside.sort(key=lambda it: (it["point_index"], it["class"], it["arm"], it["block"]))
    return tuple(
        Tally(
            point_index=it["point_index"],
            class_name=it["class"],
            arm=it["arm"],
            block=it["block"],
            counts={name: it[name] for name in OUTCOMES},
            good=it["good"],
            phase_sums_ns={phase.name: it[phase.name] for phase in PHASES},
        )
        for it in inside
    )


def check(found: Sequence[Found], manifest: Manifest) -> None:
    """Hold what was found against the manifest, and runs against each other."""
    of_run: dict[str, list[Found]] = {}
    for each in found:
        of_run.setdefault(each["run_id"], []).append(each)
    known = {
        point.name: {entry.name for entry in point.classes} for point in manifest.points
    }
    prints: dict[tuple[str, int], tuple[str, int]] = {}
    for run in manifest.runs_compared:
        classes = of_run.get(run.run_id, [])
        strange = sorted({it["class"] for it in classes} - known[run.point])
        if strange:
            raise RecordingError(
                f"run {run.run_id}: class {strange[0]!r} found, "
                f"the manifest knows {sorted(known[run.point])}"
            )
        _check_run(run, classes, sound=manifest.brokers_recorded)
        print_of_all = 0
        for each in classes:
            print_of_all ^= each["print"]
        first_run, first_print = prints.setdefault(
            (run.point, run.block), (run.run_id, print_of_all)
        )
        if print_of_all != first_print:
            raise RecordingError(
                f"runs {first_run} and {run.run_id} of block {run.block} "
                "did not meet the same requests"
            )


def _check_run(run: Run, classes: Sequence[Found], *, sound: bool) -> None:
    """Hold a run's classes against the manifest; ``sound`` if it must have phases."""
    counts: Counter[str] = Counter()
    for each in classes:
        counts.update({f"all_{name}": each[f"all_{name}"] for name in OUTCOMES})
        counts.update(sent=each["sent"], unsound=each["unsound"])
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
        f" WHEN class = {literal(name)} AND point_index IN ({', '.join(found)}) "
        f"THEN {slo_ns}D"
        for (name, slo_ns), found in indices.items()
    )
    return f"CASE{cases} ELSE {_FOREVER_NS} END" if cases else _FOREVER_NS
