"""Threads that a kernel preempts, in virtual time: by hand, by Lindley, by the model.

The kernel of the virtual world and that of the model are two programs for one rule.
Under the same requests each must let go of each request at the same nanosecond; and
where only one thread counts, Lindley's recursion says when that is.
"""

from collections import defaultdict, deque

import numpy as np
import pytest
import trio

from broker.protocol.api_keys import ApiKey
from broker.protocol.wire.codec import encode_request, request_type
from experiments.design.config import parse
from experiments.worlds.model.world import Model
from experiments.worlds.virtual import world
from experiments.worlds.virtual.kernel import Kernel, Sharing
from experiments.worlds.virtual.world import Virtual
from simulation.virtual_time.apis import receive_frame
from simulation.virtual_time.memory_network import MemoryStream
from tests.broker.apis.requests import entity
from tests.model.simulation import MS, exponential, poisson
from tests.model.test_model_threads import serve
from tests.model.test_worlds_agree import column, rows_of
from tests.planes.simulation import in_virtual_time

DATA, CONTROL = 1, 0
# Trio's clock is a float of seconds: at ten seconds it is good to 2 ns.
RESOLUTION_NS = 20


def kernel_ends_ns(jobs, *, data=1, control=0, cpus=1, slice_ns=MS, **more):
    """Serve jobs by threads that take the next one as they end one, as workers do."""
    seats = {DATA: data, **({CONTROL: control} if control else {})}
    ended_ns = {}

    async def main(clock):
        kernel = Kernel(
            seats, Sharing(cpus=cpus, slice_ns=slice_ns, **more), clock.now_ns
        )
        waiting, free = defaultdict(deque), dict(seats)

        async def work(number, plane, needs_ns):
            while True:
                await kernel.receive(plane, needs_ns)
                ended_ns[number] = clock.now_ns()
                if not waiting[plane]:
                    free[plane] += 1
                    return
                number, needs_ns = waiting[plane].popleft()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kernel.run)
            for number, (at_ns, level, needs_ns) in enumerate(jobs):
                await trio.sleep_until(at_ns / 1e9)
                plane = level if level in seats else DATA
                if free[plane]:
                    free[plane] -= 1
                    nursery.start_soon(work, number, plane, needs_ns)
                else:
                    waiting[plane].append((number, needs_ns))
            await trio.sleep_until(jobs[-1][0] / 1e9 + 1e4)
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    return [ended_ns[number] for number in range(len(jobs))]


def test_a_thread_that_wakes_preempts_and_one_that_may_not_waits_for_a_slice():
    jobs = [(0, DATA, 10 * MS), (2 * MS, CONTROL, MS)]
    threads = {"data": 1, "control": 1, "slice_ns": 3 * MS}
    assert kernel_ends_ns(jobs, **threads) == [11 * MS, 3 * MS]
    assert kernel_ends_ns(jobs, **threads, wakes=False) == [11 * MS, 4 * MS]


def test_switches_and_preemptions_are_lost_work():
    """By hand: switch, 2 ms of data; switch and preempt, control; switch, the rest."""
    jobs = [(0, DATA, 10 * MS), (2 * MS, CONTROL, MS)]
    costs = {"switch_ns": 4_000, "preemption_ns": 10_000}
    found = kernel_ends_ns(jobs, data=1, control=1, slice_ns=3 * MS, **costs)
    assert found == [11 * MS + 3 * 4_000 + 10_000, 3 * MS + 4_000 + 10_000]


@pytest.mark.parametrize(
    "threads",
    [
        {"data": 1},
        {"data": 4, "slice_ns": MS // 3},
        {"data": 1, "control": 1, "slice_ns": 10_000 * MS},
        {"data": 4, "control": 1, "slice_ns": MS},
        {"data": 4, "control": 1, "slice_ns": MS, "wakes": False},
        {"data": 3, "control": 1, "slice_ns": MS, "switch_ns": 4_000},
        {"data": 3, "control": 1, "slice_ns": MS, "preemption_ns": 9_000},
    ],
    ids=str,
)
def test_both_kernels_let_go_of_each_request_at_the_same_time(threads):
    jobs = list(poisson(17, 300, (0.2, 0.5), [exponential(0.5), exponential(1.2)]))
    model = {task.number: task.remote_done_ns for task in serve(jobs, **threads).tasks}
    found = kernel_ends_ns(jobs, **threads)
    assert len(model) == len(found) == len(jobs)
    late = [abs(ns - model[number]) for number, ns in enumerate(found)]
    assert max(late) <= RESOLUTION_NS, late.index(max(late))


def test_on_two_cpus_both_kernels_are_the_same_but_for_when_turns_begin_anew():
    """A request that ends beyond its thread's turn begins one, or does not."""
    rates, threads = (0.4, 1.0), {"data": 4, "control": 1, "cpus": 2}
    jobs = list(poisson(17, 400, rates, [exponential(0.5), exponential(1.2)]))
    model = {task.number: task.remote_done_ns for task in serve(jobs, **threads).tasks}
    found = kernel_ends_ns(jobs, **threads)
    for level in (CONTROL, DATA):
        here = [number for number, job in enumerate(jobs) if job[1] == level]
        ours, theirs = (
            np.array([ends[number] - jobs[number][0] for number in here])
            for ends in (found, model)
        )
        assert ours.mean() == pytest.approx(theirs.mean(), rel=0.01)
        assert np.percentile(ours, 95) == pytest.approx(
            np.percentile(theirs, 95), rel=0.02
        )


def test_a_plane_that_always_preempts_waits_for_itself_alone():
    """Preemptive M/G/1: control is a queue of its own, work is conserved (Lindley)."""
    jobs = list(poisson(5, 400, (0.2, 0.5), [exponential(0.5), exponential(1.2)]))
    found = kernel_ends_ns(jobs, data=1, control=1, slice_ns=10_000 * MS)
    alone_ns = all_ns = 0
    for (at_ns, level, needs_ns), ended_ns in zip(jobs, found, strict=True):
        all_ns = max(all_ns, at_ns) + needs_ns
        if level == CONTROL:
            alone_ns = max(alone_ns, at_ns) + needs_ns
            assert abs(ended_ns - alone_ns) <= RESOLUTION_NS
    assert abs(max(found) - all_ns) <= RESOLUTION_NS


def test_threads_in_short_turns_are_processor_sharing():
    """Two at once have half of the CPU each, to within a slice."""
    jobs = [(0, DATA, 4 * MS), (MS, DATA, 2 * MS)]
    found = kernel_ends_ns(jobs, data=2, slice_ns=MS // 100, wakes=False)
    assert found == pytest.approx([6 * MS, 5 * MS], abs=MS // 50)


def test_threads_come_and_go_with_seats():
    """By hand, where each has a CPU."""
    ended_ns = {}

    async def main(clock):
        kernel = Kernel({DATA: 1}, Sharing(cpus=3, slice_ns=MS), clock.now_ns)

        async def work(number, needs_ns):
            await kernel.receive(DATA, needs_ns)
            ended_ns[number] = clock.now_ns()

        async def at(moment_ns, number, needs_ns):
            await trio.sleep_until(moment_ns / 1e9)
            nursery.start_soon(work, number, needs_ns)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(kernel.run)
            await at(0, 0, 4 * MS)
            kernel.resize({DATA: 2})
            await at(MS, 1, 2 * MS)
            # Both seats are taken when one goes; a third request has one of the two.
            await trio.sleep_until(0.002)
            kernel.resize({DATA: 1})
            await at(5 * MS, 2, MS)
            kernel.resize({DATA: 3})
            for number in (3, 4, 5):
                await at(10 * MS, number, 2 * MS)
            await trio.sleep_until(1)
            nursery.cancel_scope.cancel()

    in_virtual_time(main)
    ended_ms = [ended_ns[number] / MS for number in range(6)]
    assert ended_ms == pytest.approx([4, 3, 6, 12, 12, 12])


@pytest.mark.parametrize("before", [1, 4])
def test_the_whole_broker_is_as_if_it_had_begun_with_the_altered_threads(
    tmp_path, monkeypatch, before
):
    """Twice or half as many, altered before the load; busy enough that it counts."""
    begun_with_two = times_of(whole("fifo", threads=2), tmp_path)
    assert begun_with_two != times_of(whole("fifo", threads=before), tmp_path)
    prepare = world._prepare

    async def altering(network, ports, workload):
        stream = MemoryStream(network.connect(ports["PLAINTEXT"]))
        await stream.send_all(alteration("num.io.threads", "2"))
        await receive_frame(stream)
        await stream.aclose()
        return await prepare(network, ports, workload)

    monkeypatch.setattr(world, "_prepare", altering)
    altered = times_of(whole("fifo", threads=before), tmp_path)
    assert altered == pytest.approx(begun_with_two, abs=RESOLUTION_NS)


def times_of(subject, directory):
    _, rows = rows_of(Virtual(), subject, 0, directory)
    done_ns, intended_ns = column(rows, "client_done_ns"), column(rows, "intended_ns")
    return [done - sent for done, sent in zip(done_ns, intended_ns, strict=True)]


def alteration(name, value):
    """The frame that sets a config of the one broker there is."""
    key, version = ApiKey.INCREMENTAL_ALTER_CONFIGS, 1
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 4, "resource_name": "0", "configs": [config]}
    fields = {"resources": [resource], "validate_only": False}
    body = entity(request_type(key, version), fields)
    return encode_request(key, version, -1, "operator", body)


def test_planes_that_lend_seats_have_no_threads_of_their_own():
    with pytest.raises(ValueError, match=r"virtual: a thread serves one plane"):
        whole("planes-lending", model="cpu")


def whole(scheduler, rates=(400.0, 130.0), *, threads=8, model="threads"):
    """One CPU, 60 % busy, under a broker of nine threads in two planes or in one."""
    kernel = {"cpus": 1, "slice_us": 1000.0, "switch_us": 4.0}
    classes = ("leader-and-isr", 200.0), ("produce", 4000.0)
    return parse(
        {
            "experiment": {"name": "k", "seed": 31, "blocks": 1, "baseline": "it"},
            "workload": {
                "duration_s": 1.0,
                "traffic": [
                    {
                        "name": api,
                        "connections": 60,
                        "arrivals": {"kind": "poisson", "rate_per_s": rate},
                        "request": {"api": api},
                        "service": {"kind": "exponential", "mean_us": mean_us},
                    }
                    for rate, (api, mean_us) in zip(rates, classes, strict=True)
                ],
            },
            "arms": [{"name": "it", "scheduler": scheduler}],
            "broker": {"set": {"num.io.threads": str(threads)}},
            "virtual": {"server": "threads", "kernel": kernel},
            "model": {"server": model, **(kernel if model == "threads" else {})},
        }
    )


def p95_of_control_ms(scheduler, directory):
    """Control wants a fiftieth of the CPU, and all together 82 % of it."""
    subject = whole(scheduler, rates=(100.0, 200.0))
    drawn, rows = rows_of(Virtual(), subject, 0, directory)
    took_ns = np.array(column(rows, "client_done_ns")) - column(rows, "intended_ns")
    return np.percentile(took_ns[np.array(drawn.column("class")) == "control"], 95) / MS


def test_planes_are_no_priority_queue_although_requests_run_to_their_end(tmp_path):
    """A queue makes control wait for a thread, planes have one that preempts.

    Where planes take turns instead, neither can take the CPU from a request.
    """
    planes, queue = (
        p95_of_control_ms(it, tmp_path) for it in ("planes", "np-priority")
    )
    assert planes < queue / 2


@pytest.mark.parametrize("scheduler", ["fifo", "planes", "np-priority"])
def test_the_whole_broker_on_such_threads_agrees_with_the_model(tmp_path, scheduler):
    """Equivalence with a margin: each class's p95 and mean to within 2 %."""
    subject = whole(scheduler)
    drawn, model = rows_of(Model(lambda: None), subject, 0, tmp_path)
    _, virtual = rows_of(Virtual(), subject, 0, tmp_path)
    intended_ns = np.array(column(model, "intended_ns"))
    theirs = np.array(column(model, "response_sent_ns")) - intended_ns
    ours = np.array(column(virtual, "client_done_ns")) - intended_ns
    names = np.array(drawn.column("class"))
    for name in ("control", "produce"):
        here = names == name
        assert here.sum() > 90
        assert ours[here].mean() == pytest.approx(theirs[here].mean(), rel=0.02)
        p95s = [np.percentile(ns[here], 95) for ns in (ours, theirs)]
        assert p95s[0] == pytest.approx(p95s[1], rel=0.02)
