"""Failures of long-lived tasks are contained and counted, and the task runs again."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from broker.client.network_client import connect_tcp, reach
from broker.observation.supervisor import PAUSE_MAX_S, PAUSE_S, Supervisor
from broker.protocol.host_names import can_be_encoded
from planes.admission import Block
from planes.plane import PlaneCore
from planes.task import Task
from schedulers.contract.config import SchedulerConfig
from schedulers.contract.job import Job
from schedulers.policies.fifo import Fifo

FAULTS = (
    OSError(errno.EMFILE, "too many open files"),
    ValueError("odd"),
    RuntimeError("can't start new thread"),
    MemoryError(),
    KeyError("gone"),
    ExceptionGroup("nursery", [KeyError("gone"), OSError(errno.ENFILE, "full")]),
)


class BrokenPolicy(Fifo):
    """A scheduling policy that raises an error of its own."""

    def arrive(self, job: Job, now_ns: int) -> None:
        raise KeyError(job)


def run_virtually(main: Callable[[], Awaitable[None]]) -> None:
    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.parametrize("fault", FAULTS, ids=repr)
def test_a_task_that_fails_runs_again_and_is_counted(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor, runs = Supervisor(), []

    async def work() -> None:
        runs.append(trio.current_time())
        if len(runs) < 3:
            raise fault

    async def main() -> None:
        await supervisor.keep("fetcher", work)

    run_virtually(main)
    began_s, again_s, third_s = runs
    assert again_s - began_s == pytest.approx(PAUSE_S)
    assert third_s - again_s == pytest.approx(2 * PAUSE_S)
    assert supervisor.failures == {"fetcher": 2}
    (metric,) = supervisor.metrics()
    assert (metric.labels, metric.value) == ({"duty": "fetcher"}, 2)
    logged = [record.__dict__["fields"]["task"] for record in caplog.records]
    assert logged == ["fetcher"] * 2


def test_pauses_are_bounded_and_begin_anew_after_a_healthy_run() -> None:
    supervisor = Supervisor()
    ended: list[float] = []
    pauses: list[float] = []

    async def work() -> None:
        if ended:
            pauses.append(trio.current_time() - ended[-1])
        if len(ended) == 12:
            await trio.sleep(PAUSE_MAX_S)
        ended.append(trio.current_time())
        if len(ended) < 15:
            raise ValueError

    async def main() -> None:
        await supervisor.keep("timer", work)

    run_virtually(main)
    assert max(pauses) == pytest.approx(PAUSE_MAX_S)
    assert pauses[:2] == pytest.approx([PAUSE_S, 2 * PAUSE_S])
    assert pauses[-2:] == pytest.approx([PAUSE_S, 2 * PAUSE_S])


def test_cancellation_passes_through_also_beside_a_fault() -> None:
    """One exception group holds a task's failure and its sibling's cancellation."""
    supervisor = Supervisor()

    async def fails_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise KeyError

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_when_cancelled)
            nursery.start_soon(trio.sleep_forever)

    async def main() -> None:
        with trio.move_on_after(1) as scope:
            await supervisor.keep("session", work)
        assert scope.cancelled_caught
        assert trio.current_time() < 2

    run_virtually(main)
    assert supervisor.failures == {"session": 1}


@pytest.mark.parametrize("policy", [Fifo, BrokenPolicy])
def test_the_breach_of_a_plane_ends_the_task(policy: type[Fifo]) -> None:
    supervisor, runs = Supervisor(), []
    plane = PlaneCore("data", policy(SchedulerConfig()), Block(capacity=10), seats=1)

    async def work() -> None:
        runs.append(1)
        task = Task(number=1, request_class="data")
        plane.offer(task, 0)
        plane.seated = 2
        plane.check()

    async def main() -> None:
        await supervisor.keep("processor", work)

    with pytest.raises(ExceptionGroup) as raised:
        run_virtually(main)
    assert raised.group_contains((AssertionError, KeyError))
    assert runs == [1]


# ---- host names ----

ODD_HOSTS = ("a..b", ".a", "a" * 64, f"x.{'b' * 64}.c", "a\0b", "\u2603..x", "\ud800")
HOSTS = ("localhost", "a.b.", "under_score", "::1", "fe80::1%eth0", "bücher.example")


@pytest.mark.parametrize("host", ODD_HOSTS, ids=ascii)
def test_a_host_that_cannot_be_looked_up_is_one_that_cannot_be_reached(
    host: str,
) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="cannot be reached"):
            await reach(connect_tcp, host, 9092, 1)

    trio.run(main)
    assert not can_be_encoded(host)


@pytest.mark.parametrize("host", HOSTS)
def test_hosts_that_can_be_looked_up(host: str) -> None:
    assert can_be_encoded(host)


@pytest.mark.parametrize("port", [-1, 65_536, 1 << 31])
def test_a_port_that_is_none_cannot_be_reached(port: int) -> None:
    async def main() -> None:
        with pytest.raises(OSError, match="cannot be reached"):
            await reach(connect_tcp, "127.0.0.1", port, 1)

    trio.run(main)
