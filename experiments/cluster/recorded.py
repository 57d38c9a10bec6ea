"""From the observations of clients and brokers to the files of a run.

The brokers' own rows are joined with the attempts by number and API. Replication and
other traffic between brokers has other numbers and is left out. The controller's
requests about leaders are kept: each such row is a separate attempt. A request of the
trace has the stamps of its last attempt; samples are of the broker that leads first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from broker.observation.recording.recording import MEASURES, read_violations
from broker.observation.recording.recording import STAMPS as BROKER_STAMPS
from broker.protocol.api_keys import ApiKey
from experiments.cluster.attempt_log import Try
from experiments.cluster.loaded_cluster import ClusterOutcome
from experiments.cluster.watched_decisions import Decision
from experiments.load.lateness import late, lateness
from experiments.load.trace import Trace
from experiments.records import broker_rows, recording
from experiments.records.attempts import (
    BROKER_ERROR,
    NO_REQUEST,
    Attempt,
    attempts_table,
)
from experiments.records.broker_rows import relative
from experiments.records.cost_ratio import cost_ratio
from experiments.records.recording import NEVER, Int64s, Results
from experiments.worlds.world import MachineTrial, RunFiles, RunResult

Columns = Mapping[str, Int64s]
_NAMES = (*BROKER_STAMPS, *MEASURES, BROKER_ERROR)
_OF_LEADERS = (int(ApiKey.LEADER_AND_ISR), int(ApiKey.UPDATE_METADATA))
_NONE = -1


class BrokerRecording(NamedTuple):
    """The recording of one start of a broker."""

    broker: int
    file: Path


def record_outcome(
    world: str,
    trial: MachineTrial,
    replayed: Trace,
    out: RunFiles,
    outcome: ClusterOutcome,
    records: Sequence[BrokerRecording],
) -> RunResult:
    """Write a run's requests, samples and attempts; decide whether it is valid."""
    cluster = trial.experiment.cluster
    assert cluster is not None
    assert out.attempts is not None
    labels, origin_ns = trial.labels(world), outcome.origin_ns
    seen = _joined(outcome, records)
    during = np.array([it.intended_ns >= origin_ns for it in outcome.attempt_log.tries])
    attempts = outcome.attempt_log.attempts(origin_ns, outcome.found)
    kept = [each for each, counts in zip(attempts, during, strict=True) if counts]
    commands, stamped = _commands(outcome, records)
    stamps = {
        name: np.concatenate([column[during], stamped[name]])
        for name, column in seen.items()
    }
    recording.write(attempts_table(labels, kept + commands, stamps), out.attempts)
    results = _results(outcome, replayed, seen)
    timeout_ns = round(trial.experiment.limits.timeout_ms * 1e6)
    requests = recording.requests_table(labels, replayed, results, timeout_ns)
    recording.write(requests, out.requests)
    leaders = next(it.file for it in records if it.broker == cluster.leader)
    samples = broker_rows.read_samples(leaders, origin_ns)
    recording.write(recording.samples_table(labels, samples), out.samples)
    offered_ns = np.array(outcome.offered_ns, np.int64) - origin_ns
    intended_ns = replayed.table["intended_ns"].to_numpy()
    late_ns = lateness(offered_ns, intended_ns)
    experiment, cpu_s = trial.experiment, outcome.leader_cpu.used_s
    ratio = cost_ratio(world, experiment, requests, replayed.column("traffic"), cpu_s)
    limit_ms = experiment.limits.lateness_p99_ms
    fault = late(late_ns["p99"], limit_ms)
    return RunResult(
        valid=not fault,
        reason=fault,
        trace_sha256=replayed.sha256,
        counts=recording.counts(requests, len(replayed)),
        lateness_ns=late_ns,
        lateness_by_class_ns=recording.lateness_by_class(
            offered_ns, intended_ns, replayed.column("class")
        ),
        late_requests=recording.late_requests(
            offered_ns, intended_ns, replayed.column("class"), limit_ms
        ),
        violations=_violations(records),
        broker_cpu_s=cpu_s,
        broker_cpu_wait_s=outcome.leader_cpu.waited_s,
        cost_ratio=ratio,
    )


def _joined(outcome: ClusterOutcome, records: Sequence[BrokerRecording]) -> Columns:
    """Return the brokers' records of each attempt, with stamps since the origin."""
    tries = outcome.attempt_log.tries
    by_broker = np.array([it.broker for it in tries])
    keys = np.array([it.api_key for it in tries])
    columns = {name: np.full(len(tries), NEVER, np.int64) for name in _NAMES}
    for broker, record in records:
        mine = np.where(by_broker == broker, keys, NEVER)
        rows = broker_rows.read_numbered(record, mine)
        for name, values in _columns(rows, outcome.origin_ns).items():
            columns[name][rows["correlation_id"]] = values
    return columns


def _columns(rows: npt.NDArray[Any], origin_ns: int) -> Columns:
    """Return a broker's rows as columns, with stamps since the origin."""
    columns = {}
    for name in _NAMES:
        values = rows["error_code" if name == BROKER_ERROR else name]
        counted = values.astype(np.int64)
        columns[name] = (
            relative(counted, origin_ns) if name in BROKER_STAMPS else counted
        )
    return columns


def _commands(
    outcome: ClusterOutcome, records: Sequence[BrokerRecording]
) -> tuple[list[Attempt], Columns]:
    """Return the controller's requests about leaders under load, from brokers' records.

    Only the controller knows when it sent them. All are stamped with the first decision
    under load, because one election causes them; without one, with their receipt.
    """
    decided_ns = _first_ns(outcome.decisions, outcome.origin_ns)
    attempts: list[Attempt] = []
    columns: dict[str, list[Int64s]] = {name: [] for name in _NAMES}
    for broker, record in records:
        rows = broker_rows.read_of(record, _OF_LEADERS, outcome.origin_ns)
        found = _columns(rows, outcome.origin_ns)
        for name, values in found.items():
            columns[name].append(values)
        for key, received_ns, answered_ns, code in zip(
            rows["api_key"],
            found["received_ns"],
            found["response_sent_ns"],
            found[BROKER_ERROR],
            strict=True,
        ):
            attempts.append(
                Attempt(
                    request_id=NO_REQUEST,
                    broker=broker,
                    api_key=int(key),
                    partition=_NONE,
                    acks=0,
                    records=0,
                    intended_ns=int(received_ns) if decided_ns is None else decided_ns,
                    sent_ns=NEVER,
                    client_done_ns=int(answered_ns),
                    error_code=int(code),
                    base_offset=_NONE,
                    leader=_NONE,
                    kept=_NONE,
                )
            )
    return attempts, {name: np.concatenate(parts) for name, parts in columns.items()}


def _first_ns(decisions: Sequence[Decision], origin_ns: int) -> int | None:
    """Return the first decision under load, since the origin."""
    under_load = (it.decided_ns for it in decisions if it.decided_ns >= origin_ns)
    first_ns = min(under_load, default=None)
    return None if first_ns is None else first_ns - origin_ns


def _results(outcome: ClusterOutcome, replayed: Trace, seen: Columns) -> Results:
    """Return the outcome of each request: its last attempt."""
    origin_ns = outcome.origin_ns
    last = outcome.attempt_log.last_tries(len(replayed), origin_ns)
    columns = {
        name: np.array([NEVER if it is None else seen[name][it.number] for it in last])
        for name in (*BROKER_STAMPS, *MEASURES)
    }
    columns["sent_ns"] = _since([_sent_ns(it) for it in last], origin_ns)
    columns["client_done_ns"] = _since([_done_ns(it) for it in last], origin_ns)
    codes = [0 if it is None else it.error_code for it in last]
    return Results(
        columns=columns,
        error_code=np.array(codes, np.int16),
        ended_ns=outcome.ended_ns - origin_ns,
    )


def _since(stamps_ns: list[int], origin_ns: int) -> Int64s:
    return relative(np.array(stamps_ns, np.int64), origin_ns)


def _sent_ns(attempt: Try | None) -> int:
    return NEVER if attempt is None else attempt.sent_ns


def _done_ns(attempt: Try | None) -> int:
    return NEVER if attempt is None else attempt.client_done_ns


def _violations(records: Sequence[BrokerRecording]) -> dict[str, int] | None:
    """Return the number of violations of each law over all brokers."""
    total: Counter[str] = Counter()
    for _, record in records:
        found = read_violations(record)
        if found is None:
            return None
        total.update(found)
    return dict(total)
