"""Synthetic run directories in the format of experiments, from a queue in NumPy.

One server receives bursts of PRODUCE and a steady stream of control requests. Under
``fifo`` a control request waits for all earlier requests (Lindley's recursion), under
other arms only for earlier control requests. The remaining stamps are small constants
with noise.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.records.recording import REQUESTS_SCHEMA, SAMPLES_SCHEMA

Int64s = npt.NDArray[np.int64]
Rows = dict[str, Any]

CLASSES = ("control", "produce", "fetch")
API_KEYS = {"control": 4, "produce": 0, "fetch": 1}
ARMS = ("fifo", "planes", "priority", "wfq")
RATES = {"control": 1500.0, "produce": 1200.0, "fetch": 300.0}
MS = 1_000_000
_ENVIRONMENT = {
    "cpu_model": "Example CPU",
    "cores": 2,
    "kernel": "6.1",
    "machine": "x86_64",
    "python": "3.11.0",
    "packages": {"trio": "0.35.0"},
    "memory_bytes": 8 << 30,
    "pinned": True,
    "cpus": {"broker": 0, "generator": 1},
    "governor": None,
}


def write(
    directory: Path,
    *,
    blocks: int = 8,
    seconds: float = 1.0,
    rates: Mapping[str, float] | None = None,
    arms: Iterable[str] = ARMS,
    again: bool = True,
    seed: int = 1,
    analysis: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a complete run directory, and return its manifest.

    ``rates`` are requests per second by class.
    """
    per_second = dict(rates or RATES)
    names = [*arms, *(["fifo-again"] if again else [])]
    window = [0, int(seconds * 1e9)]
    manifest = _manifest(names, blocks, seed, window, per_second, analysis or {})
    _write_point(directory, manifest, "", seconds, per_second)
    save(directory, manifest)
    return manifest


def write_sweep(
    directory: Path,
    loads: Mapping[str, float],
    sizes: Mapping[str, float],
    *,
    analysis: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write a sweep of load x share of control; each factor's levels multiply rates."""
    names, seconds = [*ARMS, "fifo-again"], 0.2
    window = [0, int(seconds * 1e9)]
    manifest = _manifest(names, 2, 1, window, RATES, analysis or {})
    manifest["points"] = []
    for load, share in itertools.product(loads, sizes):
        rates = {name: rate * loads[load] for name, rate in RATES.items()}
        rates["control"] *= sizes[share]
        point = {
            "point": f"load={load} share={share}",
            "levels": {"load": load, "share": share},
            "classes": _classes(rates),
            "window_ns": window,
        }
        number = len(manifest["points"])
        manifest["points"].append(point)
        _write_point(
            directory, manifest, f"p{number:03d}-", seconds, rates, point["point"]
        )
    save(directory, manifest)
    return manifest


def _write_point(
    directory: Path,
    manifest: dict[str, Any],
    prefix: str,
    seconds: float,
    rates: Mapping[str, float],
    point: str = "",
) -> None:
    names = [arm["name"] for arm in manifest["arms"]]
    seed = manifest["seed"]
    for block in range(manifest["blocks"]):
        rng = np.random.default_rng([seed, block])
        trace = make_trace(rng, seconds, rates)
        digest = hashlib.sha256(trace["intended_ns"].tobytes()).hexdigest()
        order = rng.permutation(len(names))
        for rank, arm in zip(order, names, strict=True):
            run_id = f"{prefix}b{block:03d}-{arm}-t0"
            noise = np.random.default_rng([seed, block, names.index(arm)])
            rows = replay(trace, arm, noise)
            run = _run(run_id, block, arm, int(rank), digest, len(rows["sent_ns"]))
            run |= {"point": point} if point else {}
            write_run(directory, run, rows)
            write_samples(directory, run, rows)
            manifest["runs"].append(run)


def save(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest again, after a test has changed it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1))


def make_trace(
    rng: np.random.Generator, seconds: float, rates: Mapping[str, float]
) -> dict[str, Any]:
    """Draw arrivals: PRODUCE in bursts of about six, the others one by one."""
    parts = []
    for name, rate in rates.items():
        size = 6 if name == "produce" else 1
        starts = rng.uniform(0, seconds, rng.poisson(rate * seconds / size))
        arrivals = np.repeat(starts, rng.poisson(size, len(starts)) if size > 1 else 1)
        service = {"control": 0.1, "produce": 0.2, "fetch": 0.15}[name]
        parts.append((name, arrivals, rng.exponential(service * MS, len(arrivals))))
    label = np.concatenate([[name] * len(times) for name, times, _ in parts])
    intended = (np.concatenate([times for _, times, _ in parts]) * 1e9).astype(np.int64)
    service_ns = np.concatenate([work for *_, work in parts]).astype(np.int64) + 1000
    order = np.argsort(intended, kind="stable")
    return {
        "class": label[order],
        "intended_ns": intended[order],
        "service_ns": service_ns[order],
    }


def replay(trace: Mapping[str, Any], arm: str, rng: np.random.Generator) -> Rows:
    """Return the stamps of every request of a trace under an arm."""
    intended, service = trace["intended_ns"], trace["service_ns"]
    count = len(intended)
    wait = _waits(intended, service)
    control = trace["class"] == "control"
    suspended = np.zeros(count, np.int64)
    if not arm.startswith("fifo"):
        alone = _waits(intended[control], service[control])
        wait = wait + rng.integers(0, MS // 50, count)
        wait[control] = alone + rng.integers(0, MS // 10, int(control.sum()))
        suspended[~control] = rng.integers(0, MS // 20, int((~control).sum()))

    def small(most: int) -> Int64s:
        return rng.integers(1, most, count)

    stamps: Rows = {"sent_ns": intended + small(30_000)}
    stamps["received_ns"] = stamps["sent_ns"] + small(60_000)
    stamps["enqueued_ns"] = stamps["received_ns"] + np.where(
        wait > 20 * MS, wait // 4, 0
    )
    stamps["dequeued_ns"] = stamps["received_ns"] + wait
    stamps["local_done_ns"] = stamps["dequeued_ns"] + service + suspended
    remote = np.where(trace["class"] == "fetch", small(MS // 4), 0)
    stamps["remote_done_ns"] = stamps["local_done_ns"] + remote
    stamps["response_dequeued_ns"] = stamps["remote_done_ns"] + small(20_000)
    stamps["response_sent_ns"] = stamps["response_dequeued_ns"] + small(20_000)
    stamps["client_done_ns"] = stamps["response_sent_ns"] + small(40_000)
    prior = np.full(count, 2_000)
    stamps |= {"service_ns": service, "prior_ns": prior, "suspended_ns": suspended}
    rows = {name: list(values) for name, values in stamps.items()}
    rows |= {
        "class": list(trace["class"]),
        "intended_ns": list(intended),
        "throttle_ns": [0] * count,
        "preemptions": [int(n > 0) for n in suspended],
        "outcome": ["ok"] * count,
        "error_code": [0] * count,
    }
    return rows


def write_run(directory: Path, run: Mapping[str, Any], rows: Rows) -> None:
    """Write one run's requests."""
    count = len(rows["intended_ns"])
    table = pa.table(
        {
            "run_id": [run["run_id"]] * count,
            "block": [run["block"]] * count,
            "session": [run.get("session", run["block"])] * count,
            "arm": [run["arm"]] * count,
            "scheduler": [run["scheduler"]] * count,
            "world": ["live"] * count,
            "request_id": list(range(count)),
            "flow": [f"{name}-client" for name in rows["class"]],
            "api_key": [API_KEYS[name] for name in rows["class"]],
            "size_bytes": [200] * count,
            **rows,
        }
    )
    path = directory / run["requests"]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.select(REQUESTS_SCHEMA.names).cast(REQUESTS_SCHEMA), path)


def write_samples(directory: Path, run: Mapping[str, Any], rows: Rows) -> None:
    """Write queue samples: the number of requests between received and dequeued."""
    received, enqueued, dequeued = (
        np.array([n for n in rows[name] if n is not None])
        for name in ("received_ns", "enqueued_ns", "dequeued_ns")
    )
    ticks = np.arange(0, max(rows["intended_ns"]), 100 * MS)
    queued = [int(((enqueued <= t) & (dequeued > t)).sum()) for t in ticks]
    waiting = [int(((received <= t) & (enqueued > t)).sum()) for t in ticks]
    count = len(ticks)
    table = pa.table(
        {
            **{name: [run[name]] * count for name in ("run_id", "arm", "scheduler")},
            "world": ["live"] * count,
            "plane": ["data"] * count,
            "block": [run["block"]] * count,
            "session": [run.get("session", run["block"])] * count,
            "t_ns": ticks,
            "queued": queued,
            "waiting": waiting,
            "seated": [1] * count,
            "refused": [0] * count,
            "handler_idle": [0.2] * count,
            "processor_idle": [0.7] * count,
            "housekeeping": [0.05] * count,
        }
    )
    path = directory / run["samples"]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.select(SAMPLES_SCHEMA.names).cast(SAMPLES_SCHEMA), path)


def _waits(arrival: Int64s, service: Int64s) -> Int64s:
    """Return the wait of each request for earlier ones, by Lindley's recursion."""
    if not len(arrival):
        return arrival
    walk = np.concatenate([[0], np.cumsum(service[:-1] - np.diff(arrival))])
    return np.asarray(walk - np.minimum.accumulate(walk), dtype=np.int64)


def _run(
    run_id: str, block: int, arm: str, order: int, digest: str, sent: int
) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "cell": hashlib.sha256(run_id.encode()).hexdigest(),
        "block": block,
        "arm": arm,
        "scheduler": arm.removesuffix("-again"),
        "order": order,
        "attempt": 0,
        "valid": True,
        "reason": "",
        "requests": f"requests/{run_id}.parquet",
        "samples": f"samples/{run_id}.parquet",
        "trace_sha256": digest,
        "started": "2026-01-01T00:00:00Z",
        "seconds": 1.0,
        "counts": {"sent": sent, "ok": sent, "error": 0, "timeout": 0, "unfinished": 0},
        "lateness_ns": {"p50": 12_000, "p99": 29_000, "max": 30_000},
        "load_average": 0.4,
        "broker_cpu_s": 0.9,
    }


def _manifest(
    names: list[str],
    blocks: int,
    seed: int,
    window: list[int],
    rates: Mapping[str, float],
    analysis: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": "synthetic",
        "title": "A backlog of PRODUCE with control requests in between",
        "world": "live",
        "seed": seed,
        "blocks": blocks,
        "baseline": "fifo",
        "created": "2026-01-01T00:00:00Z",
        "finished": "2026-01-01T00:04:00Z",
        "arms": [
            {
                "name": name,
                "scheduler": name.removesuffix("-again"),
                "set": {},
                "again_of": "fifo" if name.endswith("-again") else None,
            }
            for name in names
        ],
        "classes": _classes(rates),
        "window_ns": window,
        "analysis": {
            "quantiles": [0.5, 0.95, 0.99, 0.999],
            "alpha": 0.05,
            "margin_latency": 0.05,
            "margin_goodput": 0.02,
            "exceedances_shown": 30,
            **analysis,
        },
        "config": {"experiment": {"name": "synthetic", "seed": seed}},
        "config_sha256": "0" * 64,
        "code": {"commit": "0123abc", "dirty": False, "sha256": "1" * 64},
        "environment": _ENVIRONMENT,
        "traces": [],
        "plan": [],
        "runs": [],
    }


def _classes(rates: Mapping[str, float]) -> list[dict[str, Any]]:
    return [
        {
            "class": name,
            "apis": [name],
            "slo_ns": 10 * MS if name == "control" else None,
            "offered_per_s": rate,
        }
        for name, rate in rates.items()
    ]
