"""The machine-speed gate: what counts, and that no latency has a say in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.load.trace import Trace
from experiments.running import speed
from experiments.worlds.world import RunFiles, RunResult, Trial
from tests.experiments.test_runner import FakeWorld, good, manifest, run

MS = 1_000_000


def test_a_block_counts_while_its_arms_met_about_the_same_machine() -> None:
    near = {"fifo": (4 * MS, 4 * MS), "wfq": (5 * MS, 7 * MS), "planes": (5 * MS,) * 2}
    assert speed.fault(near, band=1.5) == ""


def test_a_block_whose_machine_lurched_says_where() -> None:
    apart = {"fifo": (4 * MS, 4 * MS), "wfq": (4 * MS, 9 * MS), "planes": (8 * MS,) * 2}
    assert speed.fault(apart, band=1.5) == (
        "machine unsteady: a fixed loop took 2.00 times as long in the run of "
        "planes as in that of fifo; up to 1.5 counts"
    )


def test_the_loop_around_an_episode_is_the_geometric_mean() -> None:
    assert speed.loop_ns((2 * MS, 8 * MS)) == pytest.approx(4 * MS)


# ---- long runs: the block is repeated ----

Probes = Callable[[Trial], tuple[int, int]]


def timed(probes: Probes, late_ns: int = 0) -> FakeWorld:
    """Return a world whose CPU was as fast as said, and whose wfq may be slow."""

    def play(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        result = good(trial, trace, out)
        if trial.arm.name == "wfq":
            result = replace(result, lateness_ns={"p50": late_ns, "p99": late_ns})
        return replace(result, probes_ns=probes(trial))

    return FakeWorld(play)


def lurching(attempts: int) -> Probes:
    """Return times of a machine that is slow under wfq in block 1, so many times."""

    def probes(trial: Trial) -> tuple[int, int]:
        slow = trial.block == 1 and trial.arm.name == "wfq"
        return (3 * MS, 3 * MS) if slow and trial.attempt < attempts else (MS, MS)

    return probes


def counting(found: Any) -> Counter[tuple[int, bool]]:
    return Counter((each["block"], each["valid"]) for each in found["runs"])


def test_a_block_whose_runs_met_different_machines_is_repeated(tmp_path: Path) -> None:
    assert run(tmp_path, timed(lurching(attempts=1))) == []
    found = manifest(tmp_path)
    four = {(block, True): 4 for block in range(3)}
    assert counting(found) == {**four, (1, False): 4}
    reasons = {each["reason"] for each in found["runs"] if not each["valid"]}
    assert len(reasons) == 1
    assert "3.00 times as long in the run of wfq" in reasons.pop()
    again = [each for each in found["runs"] if each["block"] == 1 and each["valid"]]
    assert {each["attempt"] for each in again} == {1}
    # In the order in which the block was dealt.
    assert [each["order"] for each in again] == [0, 1, 2, 3]


def test_a_machine_that_stays_unsteady_leaves_the_block_out(tmp_path: Path) -> None:
    missing = run(tmp_path, timed(lurching(attempts=99)))
    assert [(it.block, it.arm) for it in missing] == [
        (1, each["arm"]) for each in manifest(tmp_path)["plan"] if each["block"] == 1
    ]
    assert all("machine unsteady" in it.reason for it in missing)
    # One repetition, as the experiment's `retries` say.
    assert counting(manifest(tmp_path))[1, False] == 8
    # Taken up again on a steadier machine, that block alone is run.
    steady = timed(lurching(attempts=0))
    assert run(tmp_path, steady, resume=True) == []
    assert {name[:4] for name in steady.ran} == {"b001"}
    assert counting(manifest(tmp_path))[1, True] == 4


def test_a_block_within_the_band_is_kept_however_slow_an_arm_was(
    tmp_path: Path,
) -> None:
    """The machine moved by 1.9 and wfq was late for a second: the probe decides."""
    world = timed(
        lambda trial: (MS, MS) if trial.arm.name == "fifo" else (19 * MS // 10,) * 2,
        late_ns=10**9,
    )
    assert run(tmp_path, world) == []
    assert counting(manifest(tmp_path)) == {(block, True): 4 for block in range(3)}


def test_a_block_is_judged_when_its_last_arm_counts(tmp_path: Path) -> None:
    """An arm that fails is repeated alone; then all four are held against the band."""
    probes = lurching(attempts=2)

    def play(trial: Trial, trace: Trace, out: RunFiles) -> RunResult:
        result = replace(good(trial, trace, out), probes_ns=probes(trial))
        if trial.block == 1 and trial.arm.name == "wfq" and trial.attempt == 0:
            return replace(result, valid=False, reason="the broker died")
        return result

    assert run(tmp_path, FakeWorld(play)) == []
    runs = [each for each in manifest(tmp_path)["runs"] if each["block"] == 1]
    told = Counter(
        (each["arm"] == "wfq", each["reason"].partition(":")[0]) for each in runs
    )
    assert told == {
        (True, "the broker died"): 1,
        (True, "machine unsteady"): 1,
        (False, "machine unsteady"): 3,
        (True, ""): 1,
        (False, ""): 3,
    }
