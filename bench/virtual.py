"""Requests per second of the virtual world, against a queue in SimPy.

Both get the same instants and demands. In the virtual world requests pass a whole
broker (sockets in memory, Kafka's formats, logs, a row for each), or two with acks=all
and replication. In SimPy they pass a single queue with one server. The ratio is the
cost of a whole broker relative to a model of its queue. A run is timed from a trace to
its rows on disk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.row import BenchRow, in_turn
from experiments.design.config import Experiment, parse
from experiments.load import trace
from experiments.load.trace import Trace
from experiments.worlds.virtual.virtual_world import make
from experiments.worlds.world import MachineTrial, RunFiles

_REQUESTS: Final = 10_000
_RATE_PER_S: Final = 2_000.0
# 60 % of one server.
_MEAN_US: Final = 300.0
_ROUNDS: Final = 3


def rows() -> Iterator[BenchRow]:
    """Compare one broker, and two that replicate, with SimPy on the same trace."""
    for name, count, acks in (
        ("virtual world, one broker, acks=1", _REQUESTS, 1),
        ("virtual world, two brokers, acks=all", _REQUESTS // 2, -1),
    ):
        experiment = _experiment(count, acks)
        drawn = trace.generate(experiment, 0)
        yield in_turn(
            name,
            "requests/s",
            _rate(drawn, partial(_virtual, experiment, drawn)),
            "SimPy Resource, the same trace",
            _rate(drawn, partial(_simpy, drawn)),
            rounds=_ROUNDS,
            more_is_better=True,
        )


def _rate(drawn: Trace, simulate: Callable[[], None]) -> Callable[[], float]:
    """Return a function that measures requests per second of wall-clock time."""

    def measure() -> float:
        began_s = time.perf_counter()
        simulate()
        return len(drawn) / (time.perf_counter() - began_s)

    return measure


def _experiment(count: int, acks: int) -> Experiment:
    data: dict[str, Any] = {
        "experiment": {"name": "bench", "seed": 4453, "blocks": 1, "baseline": "fifo"},
        "workload": {
            "duration_s": count / _RATE_PER_S,
            "traffic": [
                {
                    "name": "produce",
                    "connections": 16,
                    "arrivals": {"kind": "poisson", "rate_per_s": _RATE_PER_S},
                    "request": {
                        "api": "produce",
                        "records": 1,
                        "record_bytes": 100,
                        "acks": acks,
                    },
                    "service": {"kind": "exponential", "mean_us": _MEAN_US},
                }
            ],
        },
        "arms": [{"name": "fifo", "scheduler": "fifo"}],
        "limits": {"drain_s": 10.0},
    }
    if acks == -1:
        data["cluster"] = {"brokers": 2, "leader": 0}
    return parse(data)


def _virtual(experiment: Experiment, drawn: Trace) -> None:
    trial = MachineTrial(experiment=experiment, block=0, arm=experiment.arms[0])
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        at = Path(scratch)
        out = RunFiles(
            requests=at / "requests.parquet",
            samples=at / "samples.parquet",
            attempts=at / "attempts.parquet",
        )
        result = make(lambda: None).run(trial, drawn, out)
    if not result.valid or result.counts["ok"] != len(drawn):
        raise RuntimeError(f"a virtual run failed: {result.reason} {result.counts}")


def _simpy(drawn: Trace) -> None:
    """Serve the same requests one by one, first come, first served."""
    import simpy

    environment = simpy.Environment()
    server = simpy.Resource(environment, capacity=1)
    arrivals = drawn.column("intended_ns")
    demands = drawn.column("demand_ns")
    served: list[float] = []

    def request(at_ns: int, demand_ns: int) -> Generator[Any, Any, None]:
        with server.request() as turn:
            yield turn
            yield environment.timeout(demand_ns)
        served.append(environment.now - at_ns)

    def source() -> Generator[Any, Any, None]:
        for at_ns, demand_ns in zip(arrivals, demands, strict=True):
            yield environment.timeout(at_ns - environment.now)
            environment.process(request(at_ns, demand_ns))

    environment.process(source())
    environment.run()
    assert len(served) == len(drawn)
