"""First pass over the requests, and the check of every run by it.

`first_pass` counts requests by run, class, outcome and latency bucket, and sums phases
and costs. All other values of whole runs are sums of its rows.

Each compared run must have the counts of the manifest. All arms of a block must have
the same requests, and none twice. The latency of an answer must be present and
positive. Unless the brokers recorded no rows, the phases of every answered request must
be present and sum to its latency. None may be negative, except two that end on a stamp
of the other process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_analysis.recordings.columns import IDENTITY, OUTCOMES
from spark_analysis.recordings.contract import Manifest, RecordingError, Run
from spark_analysis.recordings.latency_histogram import histogram
from spark_analysis.recordings.load import aggregates, literal
from spark_analysis.recordings.phases import PHASES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Result of the pass for one class in one run, by column.
Found = Mapping[str, Any]

_RUN: Final = ("run_id", "point_index", "block", "session", "arm")
# Requests with a known cost: answered, and recorded by the broker.
COSTED: Final = "outcome = 'ok' AND coalesce(service_ns, 0) > 0"
_COUNTED: Final = ("sent", "known", "timeless", "unsound")
_SUMMED: Final = ("good", "cpu_ns", "costed", "slowdown")
# Time until a handler took the request, and while it was suspended. The clocks of two
# processes may differ slightly.
_WAITED: Final = "greatest(unread_ns, 0) + blocked_ns + queue_ns + suspended_ns"
# In thousandths, bounded to the range of integers for any stamps.
_SLOWDOWN: Final = "bigint(least(latency_ns * 1e3D / service_ns, 1e15D))"
# Without an objective any answer is good.
_FOREVER_NS: Final = "1e300D"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """One class in one run, within the window: integers only.

    ``point_index`` is the number of the run's point in the manifest. ``cpu_ns`` is the
    service time of the ``costed`` requests: answered, and with a recorded cost.
    ``slowdown`` sums their latencies over service times, in thousandths. ``waited_ns``
    is the longest wait of an answered request, before its handler and suspended; None
    if no broker recorded one.
    """

    point_index: int
    class_name: str
    arm: str
    block: int
    session: int
    counts: Mapping[str, int]
    good: int
    phase_sums_ns: Mapping[str, int]
    cpu_ns: int
    costed: int
    slowdown: int
    waited_ns: int | None

    @property
    def sent(self) -> int:
        """Number of requests, with any outcome."""
        return sum(self.counts.values())


def first_pass(requests: DataFrame, manifest: Manifest) -> DataFrame:
    """Count and sum all requests by run, class, outcome and latency bucket."""
    whole = " + ".join(phase.name for phase in PHASES)
    signs = " AND ".join(
        f"{phase.name} >= 0" for phase in PHASES if not phase.crosses_processes
    )
    # A missing stamp makes a phase null, and so the sum.
    sound = f"coalesce(double({whole}) = latency_ns AND {signs}, false)"
    sums = {
        "print": "bit_xor(print)",
        "known": "count(print)",
        "timeless": "count_if(outcome = 'ok' AND NOT coalesce(latency_ns > 0, false))",
        "unsound": f"count_if(outcome = 'ok' AND NOT {sound})",
        "good": f"count_if(latency_ns <= {_slo(manifest)})",
        "cpu_ns": f"sum(IF({COSTED}, service_ns, 0))",
        "costed": f"count_if({COSTED})",
        "slowdown": f"sum(IF({COSTED}, {_SLOWDOWN}, 0L))",
        "waited_ns": f"max(IF(outcome = 'ok', {_WAITED}, NULL))",
        **{phase.name: f"sum(coalesce({phase.name}, 0))" for phase in PHASES},
    }
    return histogram(requests, (*_RUN, "class", "inside", "outcome"), sums)


def tally(counted: DataFrame, manifest: Manifest) -> tuple[Tally, ...]:
    """Return the counts of each class in each run from the first pass, checked.

    :raises RecordingError: naming the first run that breaks the contract.
    """
    found: list[Found] = (
        counted.groupBy(*_RUN, "class")
        .agg(*aggregates(_checks() | _values()))
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
            session=it["session"],
            counts={name: it[name] for name in OUTCOMES},
            good=it["good"],
            phase_sums_ns={phase.name: it[phase.name] for phase in PHASES},
            cpu_ns=it["cpu_ns"],
            costed=it["costed"],
            slowdown=it["slowdown"],
            waited_ns=it["waited_ns"],
        )
        for it in inside
    )


def check(found: Sequence[Found], manifest: Manifest) -> None:
    """Compare the tally with the manifest, and runs with each other."""
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
        if classes and not print_of_all:
            # Equal hashes cancel out.
            raise RecordingError(f"{run.requests}: every request is there twice")
        first_run, first_print = prints.setdefault(
            (run.point, run.block), (run.run_id, print_of_all)
        )
        if print_of_all != first_print:
            raise RecordingError(
                f"runs {first_run} and {run.run_id} of block {run.block} "
                "did not meet the same requests"
            )


def _check_run(run: Run, classes: Sequence[Found], *, sound: bool) -> None:
    """Check a run's classes against the manifest; ``sound`` if phases are required."""
    counts: Counter[str] = Counter()
    for each in classes:
        counts.update({f"all_{name}": each[f"all_{name}"] for name in OUTCOMES})
        counts.update({name: each[name] for name in _COUNTED})
    found = {name: counts[f"all_{name}"] for name in OUTCOMES} | {
        "sent": counts["sent"]
    }
    expected = {name: run.counts[name] for name in found}
    if found != expected:
        raise RecordingError(
            f"{run.requests}: counts {found} found, expected {expected} by the manifest"
        )
    if counts["known"] < counts["sent"]:
        raise RecordingError(
            f"{run.requests}: {counts['sent'] - counts['known']} requests lack some of "
            f"the columns {', '.join(IDENTITY)}"
        )
    if counts["timeless"]:
        raise RecordingError(
            f"{run.requests}: {counts['timeless']} answered requests whose latency is "
            "missing or not positive"
        )
    if sound and counts["unsound"]:
        raise RecordingError(
            f"{run.requests}: {counts['unsound']} answered requests whose phases are "
            "missing, negative, or do not sum to the latency"
        )


def _checks() -> dict[str, str]:
    """Return SQL over all rows of a run, the warm-up included."""
    return {
        **{f"all_{name}": f"sum(IF(outcome = '{name}', n, 0))" for name in OUTCOMES},
        "sent": "sum(n)",
        "print": "bit_xor(print)",
        "known": "sum(known)",
        "timeless": "sum(timeless)",
        "unsound": "sum(unsound)",
    }


def _values() -> dict[str, str]:
    """Return SQL over the rows in the window."""
    return {
        **{name: f"sum(IF(outcome = '{name}' AND inside, n, 0))" for name in OUTCOMES},
        "in_window": "sum(IF(inside, n, 0))",
        **{name: f"sum(IF(inside, {name}, 0))" for name in _SUMMED},
        "waited_ns": "max(IF(inside, waited_ns, NULL))",
        **{p.name: f"sum(IF(outcome = 'ok' AND inside, {p.name}, 0))" for p in PHASES},
    }


def _slo(manifest: Manifest) -> str:
    """Return SQL for the largest latency of a good answer."""
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
