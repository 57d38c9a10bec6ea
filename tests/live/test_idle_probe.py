"""The speed probe on the broker's CPU: low priority, answers, and CPU accounting."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from experiments.processes.children import Child, process_cpu_s
from experiments.processes.pinning import Pinning
from experiments.processes.speed_probe import SpeedProbe
from experiments.records.machine import Watch

pytestmark = pytest.mark.live
# CPU time that the busy child uses, at any competition.
BUSY_S = 0.5
BUSY = """
import os, sys, time
cpu = sys.argv[1]
if cpu: os.sched_setaffinity(0, {int(cpu)})
print("ready", flush=True)
sys.stdin.readline()
end = time.process_time() + float(sys.argv[2])
while time.process_time() < end: pass
print("done", flush=True)
sys.stdin.readline()
"""


def nothing() -> None:
    """Do nothing."""


def busy(at: Path, name: str, cpu: int | None) -> Child:
    command = [sys.executable, "-c", BUSY, "" if cpu is None else str(cpu)]
    command.append(str(BUSY_S))
    return Child(name, command, at / f"{name}.err", tick=nothing)


def test_the_probe_runs_on_an_idle_cpu_and_reports_its_speed(tmp_path: Path) -> None:
    pinning = Pinning.here()
    with SpeedProbe(pinning, tmp_path, nothing) as probe:
        times = []
        for _ in range(3):
            probe.begin()
            assert os.sched_getscheduler(probe.pid) == os.SCHED_IDLE
            if pinning.broker is not None:
                assert os.sched_getaffinity(probe.pid) == {pinning.broker}
            times.append(probe.loop_us())
    # The loop has 300 steps on any machine.
    assert all(1 < loop_us < 10_000 for loop_us in times)


def test_the_cpu_is_kept_awake_while_nobody_asks(tmp_path: Path) -> None:
    with SpeedProbe(Pinning.here(), tmp_path, nothing) as probe:
        probe.begin()
        probe.loop_us()
        before_s = process_cpu_s(probe.pid)
        # The loop ends by CPU time; on a busy machine it takes longer.
        while process_cpu_s(probe.pid) < before_s + 0.02:
            time.sleep(0.01)


def test_the_probe_answers_on_a_busy_cpu(tmp_path: Path) -> None:
    """The CPU may be fully used; the loop is timed after the load.

    The report distinguishes a broker of the experiment from other processes.
    """
    pinning = Pinning.here()
    with (
        SpeedProbe(pinning, tmp_path, nothing) as probe,
        busy(tmp_path, "broker", pinning.broker) as broker,
        busy(tmp_path, "other", pinning.broker) as other,
    ):
        told = []
        for child in (broker, other):
            child.line(10.0)
        # No earlier wait is included: other tests use these CPUs, too.
        probe.begin()
        probe.loop_us()
        for child in (broker, other):
            watch = Watch(probe, pinning.broker, (broker,))
            child.send("")
            child.line(30.0)
            loop_us, machine = watch.end()
            assert loop_us > 0
            told.append(machine)
    if pinning.broker is None or "others_s" not in told[0]:
        pytest.skip("the kernel does not say who waits for which CPU")
    ours, theirs = told
    # CPU time of the broker itself is not included.
    assert ours["others_s"] < ours["watched_s"] - 0.8 * BUSY_S
    assert 0.6 * BUSY_S < theirs["others_s"] <= theirs["watched_s"]
