"""From the records of load and broker to a run's files, and its validity.

All worlds with a broker end alike: its record, if any, is joined with the load's and
written. The run is valid unless the records contradict each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from experiments.load.lateness import late, lateness
from experiments.load.replaying import NETWORK_EXCEPTION, Seen
from experiments.load.trace import Trace
from experiments.processes.children import UNKNOWN_CPU_TIME, CpuTime
from experiments.records import broker_rows, recording
from experiments.records.broker_rows import BrokerRecord
from experiments.records.cost_ratio import cost_ratio
from experiments.records.recording import NEVER, Results
from experiments.worlds.world import MachineTrial, RunFiles, RunResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadEnd:
    """The end of the load, on the clock of the stamps, and its fault."""

    origin_ns: int
    ended_ns: int
    trace_sha256: str
    broker_cpu: CpuTime = UNKNOWN_CPU_TIME
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The recorded tables of a run, and its result."""

    requests: pa.Table
    samples: pa.Table
    result: RunResult


def record_run(
    world: str,
    trial: MachineTrial,
    replayed: Trace,
    out: RunFiles,
    seen: Seen,
    broker_record: Path | None,
    end: LoadEnd,
) -> RunResult:
    """Join both records, write them, and decide whether the run is valid.

    ``broker_record`` is None for a broker that keeps no row per request.
    """
    if broker_record is None:
        broker = None
    else:
        broker = broker_rows.read(broker_record, requests_of(seen), end.origin_ns)
    joined = join(world, trial, replayed, seen, broker, end)
    recording.write(joined.requests, out.requests)
    recording.write(joined.samples, out.samples)
    limit_ms = trial.experiment.limits.lateness_p99_ms
    faults = [joined.result.reason, late(joined.result.lateness_ns["p99"], limit_ms)]
    reasons = [fault for fault in faults if fault]
    return replace(joined.result, valid=not reasons, reason="; ".join(reasons))


def join(
    world: str,
    trial: MachineTrial,
    replayed: Trace,
    seen: Seen,
    broker: BrokerRecord | None,
    end: LoadEnd,
) -> Joined:
    """Join both records; the run is valid unless they are inconsistent.

    ``broker`` is None if the broker keeps no row per request.
    """
    origin_ns, cpu_s = end.origin_ns, end.broker_cpu.used_s
    by_request = broker or broker_rows.nothing(requests_of(seen))
    recorded = broker_rows.by_row(by_request, seen["carrier"])
    results = Results(
        columns={
            **recorded.requests.columns,
            "sent_ns": broker_rows.relative(seen["sent_ns"], origin_ns),
            "client_done_ns": broker_rows.relative(seen["done_ns"], origin_ns),
        },
        error_code=seen["error_code"],
        ended_ns=end.ended_ns - origin_ns,
    )
    labels = trial.labels(world)
    timeout_ns = round(trial.experiment.limits.timeout_ms * 1e6)
    requests = recording.requests_table(labels, replayed, results, timeout_ns)
    offered_ns = broker_rows.relative(seen["offered_ns"], origin_ns)
    intended_ns = replayed.table["intended_ns"].to_numpy()
    faults = [
        end.fault,
        recorded.requests.fault,
        "" if broker is None else _unrecorded(results),
    ]
    reasons = [fault for fault in faults if fault]
    result = RunResult(
        valid=not reasons,
        reason="; ".join(reasons),
        trace_sha256=end.trace_sha256,
        counts=recording.counts(requests, int((offered_ns != NEVER).sum())),
        lateness_ns=lateness(offered_ns, intended_ns),
        lateness_by_class_ns=recording.lateness_by_class(
            offered_ns, intended_ns, replayed.column("class")
        ),
        late_requests=recording.late_requests(
            offered_ns,
            intended_ns,
            replayed.column("class"),
            trial.experiment.limits.lateness_p99_ms,
        ),
        violations=recorded.violations,
        accounts=recorded.accounts,
        broker_cpu_s=cpu_s,
        broker_cpu_wait_s=end.broker_cpu.waited_s,
        cost_ratio=cost_ratio(
            world, trial.experiment, requests, replayed.column("traffic"), cpu_s
        ),
    )
    samples = recording.samples_table(labels, recorded.samples)
    return Joined(requests=requests, samples=samples, result=result)


def requests_of(seen: Seen) -> int:
    """Return an upper bound of the requests' numbers.

    The last request of a closed loop is the last one of its rows.
    """
    return max(len(seen["carrier"]), int(seen["carrier"].max(initial=-1)) + 1)


def _unrecorded(results: Results) -> str:
    """Return a fault if answered requests have no broker record, or ""."""
    answered = results.columns["client_done_ns"] != NEVER
    answered &= results.error_code != NETWORK_EXCEPTION
    missing = int((answered & (results.columns["response_sent_ns"] == NEVER)).sum())
    return f"broker has no record of {missing} requests it answered" if missing else ""
