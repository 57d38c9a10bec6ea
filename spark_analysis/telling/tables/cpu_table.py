"""The table of who was billed for the broker's CPU: requests, housekeeping, nobody."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from spark_analysis.recordings.contract import Manifest
from spark_analysis.telling.tables.table import Column, Table, number, plain_number

_KIND = "housekeeping "
_KINDS_TOLD = 3


def cpu_table(manifest: Manifest) -> Table:
    """One row per arm, of all its runs that are compared and whose CPU was measured."""
    by_arm: dict[str, list[Counter[str]]] = {}
    for run in manifest.runs_compared:
        if run.accounts.get("cpu_ns"):
            by_arm.setdefault(run.arm, []).append(Counter(run.accounts))
    return Table(
        name="cpu",
        caption=(
            "Shares of the broker's CPU by who was billed for them, over all runs that "
            "are compared. Housekeeping is nobody's request: accepting, deadlines, "
            "upkeep, samples; the event loop is what its thread did for neither, and "
            "the rest other threads, and the kernel where that thread waits."
        ),
        columns=(
            Column(name="arm", heading="arm"),
            Column(name="runs", heading="runs", write=plain_number),
            Column(name="requests", heading="requests", write=number),
            Column(name="housekeeping", heading="housekeeping", write=number),
            Column(name="event_loop", heading="event loop", write=number),
            Column(name="rest", heading="rest", write=number),
            Column(name="most", heading="housekeeping, most of it"),
        ),
        rows=tuple(
            (arm, len(runs), *_shares(runs)) for arm, runs in sorted(by_arm.items())
        ),
    )


def _shares(runs: Iterable[Counter[str]]) -> tuple[float, float, float, float, str]:
    used = sum(runs, Counter[str]())
    # Where the thread waited for its CPU it was busy for longer than it computed.
    whole = max(used["cpu_ns"], used["busy_ns"])
    requests, housekeeping, loop = (
        used[name] / whole for name in ("requests_ns", "housekeeping_ns", "loop_ns")
    )
    rest = max(1 - requests - housekeeping - loop, 0.0)
    return requests, housekeeping, loop, rest, _most(used, whole)


def _most(used: Counter[str], whole: int) -> str:
    """Return the kinds of housekeeping that took most, with their shares."""
    kinds = {
        name.removeprefix(_KIND).removesuffix("_ns"): used_ns
        for name, used_ns in used.items()
        if name.startswith(_KIND)
    }
    chief = Counter(kinds).most_common(_KINDS_TOLD)
    return ", ".join(f"{kind} {number(ns / whole)}" for kind, ns in chief)
