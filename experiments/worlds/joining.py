"""From what load and broker saw of a run to its files and its verdict.

The live and the virtual world end alike: the broker's record is joined with the load's,
written, and the run judged by what cannot be right about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.load.replaying import NETWORK_EXCEPTION, Seen
from experiments.load.trace import Trace
from experiments.processes.children import UNKNOWN_CPU_TIME, CpuTime
from experiments.records import broker_rows, recording
from experiments.records.recording import NEVER, Results
from experiments.worlds.world import Cell, RunFiles, RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEnd:
    """How the load ended, on the clock of the stamps, and what went wrong."""

    origin_ns: int
    ended_ns: int
    trace_sha256: str
    broker_cpu: CpuTime = UNKNOWN_CPU_TIME
    fault: str = ""


def record_run(
    world: str,
    cell: Cell,
    replayed: Trace,
    out: RunFiles,
    seen: Seen,
    broker_record: Path | None,
    end: LoadEnd,
) -> RunResult:
    """Join both records, write them, and judge whether the run counts.

    ``broker_record`` is None for a broker that keeps no row per request.
    """
    limits, origin_ns = cell.experiment.limits, end.origin_ns
    if broker_record is None:
        broker = broker_rows.nothing(len(replayed))
    else:
        broker = broker_rows.read(broker_record, len(replayed), origin_ns)
    done_ns = broker_rows.relative(seen["done_ns"], origin_ns)
    results = Results(
        columns={
            **broker.requests.columns,
            "sent_ns": broker_rows.relative(seen["sent_ns"], origin_ns),
            "client_done_ns": done_ns,
        },
        error_code=seen["error_code"],
        ended_ns=end.ended_ns - origin_ns,
    )
    labels = cell.labels(world)
    timeout_ns = round(limits.timeout_ms * 1e6)
    rows = recording.requests_table(labels, replayed, results, timeout_ns)
    recording.write(rows, out.requests)
    samples = recording.samples_table(labels, broker.samples)
    recording.write(samples, out.samples)
    offered_ns = broker_rows.relative(seen["offered_ns"], origin_ns)
    intended_ns = replayed.table["intended_ns"].to_numpy()
    lateness = recording.lateness(offered_ns, intended_ns)
    faults = [
        end.fault,
        broker.requests.fault,
        "" if broker_record is None else _unrecorded(results),
        recording.late(lateness["p99"], limits.lateness_p99_ms),
        recording.disturbed(
            end.broker_cpu.waited_s,
            cell.experiment.workload.duration_s,
            limits.broker_wait_share,
        ),
    ]
    reasons = [fault for fault in faults if fault]
    return RunResult(
        valid=not reasons,
        reason="; ".join(reasons),
        trace_sha256=end.trace_sha256,
        counts=recording.counts(rows, int((offered_ns != NEVER).sum())),
        lateness_ns=lateness,
        violations=broker.violations,
        accounts=broker.accounts,
        broker_cpu_s=end.broker_cpu.used_s,
        broker_cpu_wait_s=end.broker_cpu.waited_s,
    )


def _unrecorded(results: Results) -> str:
    """Say how many answered requests the broker has no record of, or say nothing."""
    answered = results.columns["client_done_ns"] != NEVER
    answered &= results.error_code != NETWORK_EXCEPTION
    missing = int((answered & (results.columns["response_sent_ns"] == NEVER)).sum())
    return f"broker has no record of {missing} requests it answered" if missing else ""
