"""Trio's choices depend on the seed only, and time is whole nanoseconds.

These tests fail when a release of Trio changes the private names that they use.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from trio._core import _run
from trio.testing import wait_all_tasks_blocked

from simulation.virtual_time.determinism import deterministic, run_virtual
from tests.architecture import PACKAGES


def order_of_ten_tasks(seed):
    async def main(clock):
        order = []

        async def step(name):
            for _ in range(5):
                await trio.lowlevel.checkpoint()
                order.append(name)

        async with trio.open_nursery() as nursery:
            for name in range(10):
                nursery.start_soon(step, name)
        return order

    return run_virtual(main, seed=seed)


def test_the_order_of_tasks_follows_from_the_seed():
    orders = [order_of_ten_tasks(seed) for seed in (1, 1, 1, 2, 3)]
    assert orders[0] == orders[1] == orders[2]
    assert len({tuple(order) for order in orders}) == 3


def test_trio_is_as_it_was_afterwards():
    before = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()
    with deterministic(5):
        assert _run._ALLOW_DETERMINISTIC_SCHEDULING is True
        _run._r.random()
    assert (_run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r.getstate()) == before


def test_the_clock_counts_whole_nanoseconds_without_drift():
    async def main(clock):
        expected_ns = clock.now_ns()
        for step in range(1, 3000):
            clock.jump(step * 7 + 1)
            expected_ns += step * 7 + 1
            assert clock.now_ns() == expected_ns
        await trio.sleep(86_400)
        return clock.now_ns() - expected_ns

    assert run_virtual(main, seed=1) == 86_400 * 10**9


def test_a_jump_is_felt_by_everybody():
    async def main(clock):
        woken_ns = []

        async def sleep():
            await trio.sleep(0.001)
            woken_ns.append(clock.now_ns())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep)
            await wait_all_tasks_blocked()
            clock.jump(5_000_000)
        return woken_ns

    assert run_virtual(main, seed=1) == [5_000_000]


def test_no_other_file_knows_the_private_names_of_trio():
    root = Path(__file__).parents[2]
    found = {
        path.name
        for package in (*PACKAGES, "tests")
        for path in (root / package).rglob("*.py")
        if "trio._core" in path.read_text()
    }
    # The last two names are in tests that replace a task's coroutine, or use threads.
    assert found == {
        "determinism.py",
        "test_determinism.py",
        "fault_injection.py",
        "test_call_threads.py",
    }


PROGRAM = """
import trio

async def test_order():
    order = []

    async def step(name):
        await trio.sleep(0)
        order.append(name)

    async with trio.open_nursery() as nursery:
        for name in range(10):
            nursery.start_soon(step, name)
    print("order:", order)
"""


@pytest.mark.live
def test_every_test_of_ours_runs_trio_by_the_seed_of_the_run(tmp_path):
    """Each run is a separate process, for independence from previous runs."""
    root = Path(__file__).parents[2]
    (tmp_path / "conftest.py").write_text((root / "tests" / "conftest.py").read_text())
    (tmp_path / "test_order.py").write_text(PROGRAM)

    def order(seed):
        command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-o", "trio_mode=true", "--rootdir", tmp_path, tmp_path],
            env={**os.environ, "TRIO_SEED": str(seed), "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            check=True,
        )
        return next(it for it in done.stdout.splitlines() if it.startswith("order:"))

    first, again, other = order(1), order(1), order(2)
    assert first == again
    assert first != other
