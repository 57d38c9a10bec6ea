"""Laws of the whole broker under every scheduler, exact in virtual time."""

import random
from typing import ClassVar

import pytest
import trio

from broker.config import BrokerConfig
from schedulers import Fifo
from tests.virtual.world import (
    LEADER_AND_ISR,
    MS,
    PRODUCE,
    PRODUCE_NS,
    SLICE_NS,
    US,
    Handlers,
    in_world,
)

METADATA = (3, 1)
SCHEDULERS = ("fifo", "planes", "priority", "wfq")
every_scheduler = pytest.mark.parametrize("scheduler", SCHEDULERS)


def mixed_load(scheduler, *, seed=1, latency_ns=(0, 0), gap_ms=30, **settings):
    """Return the requests, by id, of thirty clients that send at random instants."""
    dotted = {key.replace("_", "."): value for key, value in settings.items()}

    async def scenario(world):
        async def client(number, api, listener):
            # A generator per client makes its requests independent of the task order.
            rng = random.Random(f"{seed}/{number}")
            stream = world.connect(listener)
            for _ in range(15):
                await trio.sleep(rng.expovariate(1000 / gap_ms))
                await world.ask(stream, api)

        async with trio.open_nursery() as nursery:
            for number in range(30):
                api = (PRODUCE, METADATA, LEADER_AND_ISR)[number % 3]
                own = api == LEADER_AND_ISR
                listener = world.control_listener() if own else "PLAINTEXT"
                nursery.start_soon(client, number, api, listener)
        for plane in world.server.topology.planes:
            plane.check()
            assert plane.queued == plane.seated == plane.away == 0
        return world.tasks

    return in_world(
        scenario,
        {"doorkeeper.scheduler": scheduler, **dotted},
        seed=seed,
        latency_ns=latency_ns,
    )


def trace(requests):
    return [
        (
            number,
            each.received_ns,
            each.enqueued_ns,
            each.dequeued_ns,
            each.local_done_ns,
            each.response_sent_ns,
            each.suspended_ns,
            each.preemptions,
        )
        for number, each in sorted(requests.items())
    ]


@every_scheduler
def test_each_request_is_answered_once_and_its_phases_sum_to_the_total(scheduler):
    requests = mixed_load(scheduler)
    assert sorted(requests) == list(range(30 * 15))
    for request in requests.values():
        phases = request.phases()
        assert min(phases) >= 0, request
        assert sum(phases[:-1]) == phases.total_ns
        assert request.received_ns <= request.enqueued_ns <= request.dequeued_ns


@every_scheduler
def test_a_request_costs_what_its_slices_cost_whoever_ran_between(scheduler):
    for request in mixed_load(scheduler).values():
        expected = PRODUCE_NS if request.request_class == "produce" else SLICE_NS
        assert request.attained_ns == expected
        # Local time excludes suspensions, so it contains no slices of other requests.
        assert request.phases().local_ns == expected


@every_scheduler
def test_the_cpu_never_idles_while_a_request_is_in_the_broker(scheduler):
    """The time with a request queued or in service equals the total service."""
    requests = mixed_load(scheduler).values()
    spans = sorted((each.enqueued_ns, each.remote_done_ns) for each in requests)
    occupied_ns, end_ns = 0, 0
    for start_ns, stop_ns in spans:
        occupied_ns += max(0, stop_ns - max(start_ns, end_ns))
        end_ns = max(end_ns, stop_ns)
    assert occupied_ns == sum(each.attained_ns for each in requests)


@every_scheduler
def test_the_same_seed_gives_the_same_run(scheduler):
    settings = {"latency_ns": (50 * US, 2 * MS), "num_network_threads": "3"}
    first = trace(mixed_load(scheduler, seed=7, **settings))
    assert first == trace(mixed_load(scheduler, seed=7, **settings))
    assert first != trace(mixed_load(scheduler, seed=8, **settings))


def test_schedulers_differ_in_order_and_not_in_what_they_are_offered():
    traces = {name: mixed_load(name, queued_max_requests="100") for name in SCHEDULERS}
    orders = {
        name: [
            number
            for number, _ in sorted(
                requests.items(), key=lambda item: item[1].local_done_ns
            )
        ]
        for name, requests in traces.items()
    }
    assert orders["fifo"] != orders["priority"]
    sizes = {
        name: {number: each.size_bytes for number, each in requests.items()}
        for name, requests in traces.items()
    }
    assert all(each == sizes["fifo"] for each in sizes.values())


@pytest.mark.parametrize("scheduler", ["planes", "priority"])
def test_a_long_request_is_suspended_for_a_control_request(scheduler):
    async def scenario(world):
        producer, controller = world.connect(), world.connect(world.control_listener())
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(world.ask, producer, PRODUCE)
            await trio.sleep(100 * US / 1e9)
            nursery.start_soon(world.ask, controller, LEADER_AND_ISR)
        return world.tasks

    # The sockets are polled after every slice, so arrivals are noticed soon.
    settings = {"doorkeeper.scheduler": scheduler, "doorkeeper.quantum.us": "50"}
    requests = in_world(scenario, settings)
    produce, control = requests[0], requests[1]
    assert produce.preemptions == 1
    assert produce.suspended_ns == SLICE_NS
    assert control.remote_done_ns < produce.remote_done_ns
    assert produce.remote_done_ns - produce.dequeued_ns == PRODUCE_NS + SLICE_NS


def test_fifo_suspends_nothing():
    assert all(each.preemptions == 0 for each in mixed_load("fifo").values())


def test_urgent_classes_wait_less_under_priority_than_under_fifo():
    def mean_wait_ns(scheduler, request_class):
        waits = [
            each.phases().request_queue_ns
            for each in mixed_load(scheduler, gap_ms=8).values()
            if each.request_class == request_class
        ]
        return sum(waits) / len(waits)

    for urgent in ("control", "metadata"):
        assert mean_wait_ns("priority", urgent) < mean_wait_ns("fifo", urgent) / 2
    assert mean_wait_ns("priority", "produce") > mean_wait_ns("fifo", "produce")


def test_a_stop_answers_what_is_in_the_broker_and_closes_everything():
    async def scenario(world):
        streams = [world.connect() for _ in range(5)]
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(world.ask, stream, PRODUCE)
            await trio.sleep(1 * MS / 1e9)
            began_ns = world.clock.now_ns()
            world.server.stop()
        assert sorted(world.answered_ns) == [0, 1, 2, 3, 4]
        await trio.sleep(1)
        assert world.application.closed
        assert world.observer.closed
        for stream in streams:
            assert await stream.receive_some() == b""
        with pytest.raises(ConnectionRefusedError):
            world.connect()
        return max(world.answered_ns.values()) - began_ns

    assert in_world(scenario) <= 6 * PRODUCE_NS


def test_bounds_on_connections_change_while_the_broker_runs():
    async def scenario(world):
        first = world.connect()
        await world.ask(first, METADATA)
        (reconfigure,) = world.application.config_listeners
        reconfigure(BrokerConfig.load(None, {"max.connections.per.ip": "1"}))
        assert await world.connect().receive_some() == b""
        reconfigure(BrokerConfig.load(None, {"max.connections.per.ip": "2"}))
        await world.ask(world.connect(), METADATA)

    in_world(scenario)


@every_scheduler
def test_seats_are_altered_while_it_serves(scheduler):
    async def scenario(world):
        plane = world.server.topology.planes[0]
        (reconfigure,) = world.application.config_listeners
        await world.ask(world.connect(), METADATA)
        for seats in (2, 4, 2, 1):
            reconfigure(BrokerConfig.load(None, {"num.io.threads": str(seats)}))
            assert plane.seats == seats
            await world.ask(world.connect(), METADATA)

    in_world(scenario, {"doorkeeper.scheduler": scheduler})


class Altered(Fifo):
    """Records the settings received while serving."""

    received: ClassVar[list[tuple[dict[str, float], int]]] = []

    def reconfigure(self, config):
        self.received.append((dict(config.weights), config.ageing_ns))


def test_settings_of_a_policy_are_altered_while_it_serves():
    async def scenario(world):
        (reconfigure,) = world.application.config_listeners
        await world.ask(world.connect(), METADATA)
        for configs in (
            {"num.io.threads": "2"},
            {"doorkeeper.wfq.weights": "produce:7", "num.io.threads": "2"},
            {"doorkeeper.wfq.weights": "produce:7"},
            {"doorkeeper.priority.ageing.ms": "3"},
        ):
            reconfigure(BrokerConfig.load(None, configs))
        await world.ask(world.connect(), METADATA)

    Altered.received.clear()
    in_world(scenario, {"doorkeeper.scheduler": f"{__name__}:Altered"})
    assert Altered.received == [
        ({"produce": 7.0}, 1_000_000_000),
        ({"control": 16.0, "replication": 4.0}, 3_000_000),
    ]


def test_altered_configs_are_in_force_after_a_restart():
    """`Handlers` return the altered configs of a previous run, as a broker does."""

    class Remembering(Handlers):
        def in_force(self, config):
            return super().in_force(
                config.updated({"max.connections.per.ip": "1", "num.io.threads": "3"})
            )

    async def scenario(world):
        (plane,) = world.server.topology.planes
        assert plane.seats == 3
        first = world.connect()
        await world.ask(first, METADATA)
        assert await world.connect().receive_some() == b""

    in_world(scenario, application=lambda config, clock, network: Remembering())


def test_samples_tell_what_waits_and_how_idle_everybody_is():
    async def scenario(world):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(world.ask, world.connect(), PRODUCE)
            await trio.sleep(0.1)
        return world.observer.samples

    samples = in_world(
        scenario,
        {"doorkeeper.scheduler": "planes", "doorkeeper.record.samples.ms": "2"},
    )
    data = [row for row in samples if row.plane == "data"]
    assert {row.plane for row in samples} == {"data", "control"}
    assert data[0].queued == 2
    assert data[0].handler_idle == 0.0
    assert (data[10].handler_idle, data[10].processor_idle) == (1.0, 1.0)
    ends_ns = [0] + [row.t_ns for row in data]
    busy_ns = sum(
        (1 - row.handler_idle) * (end_ns - start_ns)
        for row, start_ns, end_ns in zip(data, ends_ns, ends_ns[1:], strict=False)
    )
    assert busy_ns == pytest.approx(5 * PRODUCE_NS, rel=1e-6)
    control = [row for row in samples if row.plane == "control"]
    assert all(row.queued == 0 and row.handler_idle == 1.0 for row in control)


def test_broken_laws_are_counted_by_plane_at_the_metrics_endpoint():
    """LIFO order within one flow violates only the order law of its plane."""

    async def scenario(world):
        async with trio.open_nursery() as nursery:
            for _ in range(9):
                nursery.start_soon(world.ask, world.connect(), PRODUCE)
        laws = world.server.laws
        return list(laws.metrics()), laws.totals(), list(world.tasks.values())

    settings = {"doorkeeper.scheduler": "tests.model.broken_policies:Backwards"}
    # The network takes up to 5 ms, and a request 1 ms.
    metrics, totals, requests = in_world(scenario, settings, latency_ns=(0, 5 * MS))
    names = {metric.name + metric.suffix for metric in metrics}
    assert names == {"doorkeeper_law_violations_total"}
    assert {metric.labels["plane"] for metric in metrics} == {"data"}
    found = {metric.labels["law"]: metric.value for metric in metrics}
    assert found == totals
    overtaken = sum(
        any(
            other.enqueued_ns > each.enqueued_ns
            and other.dequeued_ns < each.dequeued_ns
            for other in requests
        )
        for each in requests
    )
    assert overtaken >= 2
    assert {law: count for law, count in found.items() if count} == {"order": overtaken}


def test_controllers_are_let_in_before_brokers_and_brokers_before_clients():
    async def scenario(world):
        return [acceptor.listener for acceptor in world.server.socket_server.acceptors]

    settings = {
        "listeners": "CLIENTS://127.0.0.1:1,INTERNAL://127.0.0.1:2,CONTROL://127.0.0.1:3",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT,"
        "CONTROL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "control.plane.listener.name": "CONTROL",
        "doorkeeper.controller.listeners": "CONTROL",
        "doorkeeper.scheduler": "planes",
    }
    assert in_world(scenario, settings) == ["CONTROL", "INTERNAL", "CLIENTS"]
