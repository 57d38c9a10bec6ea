"""The probe behind a broker: it gives way, answers, and tells who had the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.processes.children import CpuTime
from experiments.processes.pinning import Pinning
from experiments.processes.speed_probe import IdleProbe
from experiments.records.machine import beside_probe

pytestmark = pytest.mark.live
# Has a CPU to itself for so long, whoever else wants it.
BUSY = "import time; end = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass"


def nothing() -> None:
    """Do nothing meanwhile."""


def test_it_runs_when_nobody_else_does_and_says_how_fast(tmp_path: Path) -> None:
    pinning = Pinning.here()
    with IdleProbe(pinning, tmp_path, nothing) as probe:
        times = []
        for _ in range(3):
            probe.begin()
            assert os.sched_getscheduler(probe.pid) == os.SCHED_IDLE
            if pinning.broker is not None:
                assert os.sched_getaffinity(probe.pid) == {pinning.broker}
            times.append(probe.loop_ns())
    # A loop of 300 steps, whatever the machine.
    assert all(1_000 < loop_ns < 10_000_000 for loop_ns in times)


def test_it_answers_beside_who_takes_the_whole_cpu(tmp_path: Path) -> None:
    """What is left of the CPU may be nothing; the loop is timed when that is over."""
    pinning = Pinning.here()
    allowed = (
        {pinning.broker} if pinning.broker is not None else os.sched_getaffinity(0)
    )
    with IdleProbe(pinning, tmp_path, nothing) as probe:
        probe.begin()
        before = probe.cpu_time()
        began_s = time.monotonic()
        subprocess.run(
            [sys.executable, "-c", BUSY],
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, allowed),
        )
        waited = probe.cpu_time() - before
        assert probe.loop_ns() > 0
        took_s = time.monotonic() - began_s
    told = beside_probe({"cpu_pressure_s": 1.0}, waited, CpuTime(0.0, 0.0))
    if waited.waited_s is not None and pinning.broker is not None:
        assert 0.3 < told["others_s"] < took_s


def test_what_the_broker_had_is_not_others() -> None:
    found = {"load_average": 1.0, "cpu_pressure_s": 0.3}
    probe, broker = CpuTime(0.01, 0.25), CpuTime(0.2, 0.0)
    told = beside_probe(found, probe, broker)
    assert told == {"load_average": 1.0, "others_s": 0.05}
    assert beside_probe(found, probe, CpuTime(0.4, 0.0))["others_s"] == 0.0
    assert "others_s" not in beside_probe(found, CpuTime(), broker)
