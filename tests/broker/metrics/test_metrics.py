"""Metrics, parsed by Prometheus' own parser and compared with the requests."""

import pytest
import trio

from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.observation.metric import Metric
from broker.observation.metrics.acceptors import AcceptorMetrics
from broker.observation.metrics.collector import Collector, Sources
from broker.observation.metrics.endpoint import (
    ALL,
    OF_REQUESTS,
    open_port,
    serve_metrics,
)
from broker.observation.metrics.purgatories import purgatory_metrics
from broker.observation.metrics.request_metrics import RequestMetrics
from broker.observation.supervisor import Supervisor
from broker.requests.purgatory import Purgatory
from broker.requests.request import Request
from planes import Block, PlaneCore, Task
from schedulers import Fifo, SchedulerConfig
from tests.broker.apis.broker_world import World
from tests.broker.metrics.text import exposition, samples
from tests.virtual.world import (
    LEADER_AND_ISR,
    PRODUCE,
    PRODUCE_NS,
    SLICE_NS,
    in_world,
)


def scraped(scheduler="planes"):
    """Run twenty requests through a broker in virtual time, and scrape it."""

    async def scenario(world):
        metrics = RequestMetrics()
        collector = Collector(
            Sources(
                requests=metrics,
                channels=tuple(world.server.request_channels.values()),
                processors=world.server.processors,
                pool=None,
                now_ns=world.clock.now_ns,
                more=(world.server.accounts.metrics,),
            )
        )
        for _ in range(10):
            await world.ask(world.connect(), PRODUCE)
            await world.ask(world.connect(world.control_listener()), LEADER_AND_ISR)
        for request in world.observer.requests:
            metrics.observe(request)
        used_ns = 10 * (PRODUCE_NS + SLICE_NS)
        await trio.sleep((4 * used_ns - world.clock.now_ns()) / 1e9)
        return samples(exposition(collector.collect())), world.observer.requests

    return in_world(scenario, {"doorkeeper.scheduler": scheduler})


def test_phases_of_requests_add_up_under_kafkas_names():
    found, requests = scraped()
    prefix = "kafka_network_requestmetrics_"
    for api, key in (("Produce", 0), ("LeaderAndIsr", 4)):
        own = [each for each in requests if each.api_key == key]
        label = ("request", api)
        assert found[prefix + "totaltimems_count", label] == len(own) == 10
        sums = {
            name: found[f"{prefix}{name}_sum", label]
            for name in (
                "requestqueuetimems",
                "localtimems",
                "suspendedtimems",
                "remotetimems",
                "responsequeuetimems",
                "responsesendtimems",
                "totaltimems",
            )
        }
        total = sums.pop("totaltimems")
        assert sum(sums.values()) == pytest.approx(total)
        expected_ns = sum(each.task.phases().total_ns for each in own)
        assert total == pytest.approx(expected_ns / 1e6)
        version = {0: "8", 4: "1"}[key]
        assert found[prefix + "requests_total", label, ("version", version)] == 10
        assert found[prefix + "errors_total", ("error", "NONE"), label] == 10


def test_a_quantile_is_that_of_the_requests():
    found, _ = scraped()
    name = "kafka_network_requestmetrics_localtimems"
    key = (name, ("quantile", "0.99"), ("request", "Produce"))
    assert found[key] == pytest.approx(PRODUCE_NS / 1e6, rel=1 / 16)


def test_classes_are_distinguished():
    found, _ = scraped()
    name = "doorkeeper_requestmetrics_totaltimems_count"
    assert found[name, ("class", "control"), ("plane", "control")] == 10
    assert found[name, ("class", "produce"), ("plane", "data")] == 10


def test_preemptions_are_counted_by_class_and_plane():
    metrics = RequestMetrics()
    for preemptions in (0, 2, 5):
        request = fetch("fetch")
        request.task.preemptions = preemptions
        metrics.observe(request)
    ((key, stats),) = metrics.by_class().items()
    assert (key, stats.preemptions) == (("fetch", "data"), 7)


def test_idle_ratios_are_those_since_the_last_scrape():
    found, _ = scraped()
    pool = "kafka_server_kafkarequesthandlerpool_"
    produce = 10 * PRODUCE_NS / (40 * (PRODUCE_NS + SLICE_NS))
    control = 10 * SLICE_NS / (40 * (PRODUCE_NS + SLICE_NS))
    idle = "requesthandleravgidle_percent"
    assert found[(pool + idle,)] == pytest.approx(1 - produce)
    assert found[(f"{pool}controlplane{idle}",)] == pytest.approx(1 - control)
    assert ("kafka_network_socketserver_networkprocessoravgidle_percent",) in found


def test_cpu_of_planes_and_of_housekeeping_is_exported():
    found, _ = scraped()
    name = "doorkeeper_cpu_billed_seconds_total"
    billed_s = found[name, ("to", "plane data")]
    assert billed_s == pytest.approx(10 * PRODUCE_NS / 1e9)
    assert found[name, ("to", "housekeeping")] == 0  # in virtual time
    of_kind = "doorkeeper_housekeeping_seconds_total"
    assert found[of_kind, ("of", "accepting")] == 0


def test_queues_and_connections_are_counted_by_plane_and_processor():
    found, _ = scraped()
    channel = "kafka_network_requestchannel_"
    assert found[(channel + "requestqueuesize",)] == 0
    assert found[(channel + "controlplanerequestqueuesize",)] == 0
    connections = {
        dict(labels)["listener"]: value
        for (name, *labels), value in found.items()
        if name == "kafka_server_socket_server_metrics_connection_count"
    }
    assert connections == {"PLAINTEXT": 10, "CONTROLLER": 10}


def test_a_shared_plane_has_no_control_plane_metrics():
    found, _ = scraped("fifo")
    assert not any("controlplane" in name for name, *_ in found)


def test_a_fetch_is_counted_under_two_names():
    metrics = RequestMetrics()
    for request_class in ("fetch", "fetch", "replication"):
        metrics.observe(fetch(request_class))
    counts = {name: stats.size.count for name, stats in metrics.by_api().items()}
    assert counts == {"Fetch": 3, "FetchConsumer": 2, "FetchFollower": 1}


def fetch(request_class):
    task = Task(
        number=0,
        request_class=request_class,
        size_bytes=10,
        **dict.fromkeys(
            (
                "received_ns",
                "dequeued_ns",
                "local_done_ns",
                "remote_done_ns",
                "response_dequeued_ns",
                "response_sent_ns",
            ),
            7,
        ),
    )
    task.plane = PlaneCore("data", Fifo(SchedulerConfig()), Block(capacity=1), seats=1)
    return Request(
        task,
        api_key=1,
        api_version=4,
        correlation_id=0,
        client_id="",
        frame=b"",
        body_offset=0,
        peer=None,
    )


def test_purgatories_are_counted_by_kafkas_names():
    class Waits:
        def try_key(self, key):
            return False

        def on_expiration(self):
            pass

    purgatory = Purgatory("Fetch")
    for deadline_ns in (1_000_000, 2_000_000, 9_000_000):
        purgatory.watch(Waits(), ["p"], deadline_ns, lambda: None)
    purgatory.expire(2_000_000)
    found = samples(exposition(purgatory_metrics([purgatory])))
    label = ("delayedoperation", "Fetch")
    prefix = "kafka_server_delayedoperationpurgatory_"
    assert found[prefix + "numdelayedoperations", label] == 1
    assert found[prefix + "purgatorysize", label] == 1
    assert found[prefix + "expires_total", label] == 2


def test_all_that_wait_for_replicas_are_scraped():
    """Kafka's ``delayedOperation`` metrics of its ``ReplicaManager``."""
    found = samples(exposition(World().apis.metrics()))
    prefix = "kafka_server_delayedoperationpurgatory_"
    for operation in ("Produce", "Fetch", "DeleteRecords"):
        label = ("delayedoperation", operation)
        assert found[prefix + "numdelayedoperations", label] == 0
        assert found[prefix + "expires_total", label] == 0


def test_labels_survive_prometheus_parser():
    odd = 'a "quoted" back\\slash\nand a line'
    text = exposition([Metric(name="x", kind="gauge", value=1.5, labels={"l": odd})])
    assert samples(text) == {("x", ("l", odd)): 1.5}


@pytest.mark.live
async def test_metrics_are_served_over_http(nursery):
    def collect():
        return [[Metric(name="up", kind="gauge", value=1)]]

    collectors = {ALL: collect, OF_REQUESTS: list}
    port = await nursery.start(serve_metrics, open_port(0), collectors, Supervisor())

    async def ask(head):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(head)
            answer = b""
            async for chunk in stream:
                answer += chunk
        return answer.decode()

    head, _, body = (await ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).partition(
        "\r\n\r\n"
    )
    assert head.startswith("HTTP/1.1 200 OK")
    assert f"Content-Length: {len(body)}" in head
    found = samples(body)
    # This task, and at least those of the server and of the test.
    assert found.pop(("doorkeeper_trio_tasks",)) >= 3
    assert found == {("up",): 1}
    assert "\nup " not in await ask(b"GET /metrics/requests HTTP/1.1\r\n\r\n")
    assert "404" in await ask(b"GET / HTTP/1.1\r\n\r\n")
    assert "405" in await ask(b"POST /metrics HTTP/1.1\r\n\r\n")
    assert await ask(b"x" * 9000) == ""
    nursery.cancel_scope.cancel()


async def test_acceptors_tell_how_long_they_were_blocked(nursery, autojump_clock):
    def now_ns():
        return round(trio.current_time() * 1e9)

    quotas = ConnectionQuotas(ConnectionLimits(total=1), now_ns)
    planes = {"PLAINTEXT": "data", "CONTROLLER": "control"}
    metrics = AcceptorMetrics(quotas, planes, now_ns)
    await quotas.wait_for_slot("PLAINTEXT")
    quotas.open("PLAINTEXT", "10.0.0.1")
    await trio.sleep(3)
    nursery.start_soon(quotas.wait_for_slot, "PLAINTEXT")
    await trio.sleep(1)
    found = samples(exposition(metrics.collect()))
    blocked = "kafka_network_acceptor_acceptorblockedpercent"
    assert found[blocked, ("listener", "PLAINTEXT")] == pytest.approx(0.25)
    control = "kafka_network_acceptor_controlplaneacceptorblockedpercent"
    assert found[control, ("listener", "CONTROLLER")] == 0
    # Two connections in four seconds; the rate is computed over at least ten seconds.
    rate = "kafka_server_socket_server_metrics_connection_accept_rate"
    assert found[rate, ("listener", "PLAINTEXT")] == pytest.approx(2 / 10)
    every = "kafka_server_socket_server_metrics_broker_connection_accept_rate"
    assert found[(every,)] == pytest.approx(2 / 10)
    await trio.sleep(1)
    quotas.close("PLAINTEXT", "10.0.0.1")
    await trio.sleep(1)
    found = samples(exposition(metrics.collect()))
    assert found[blocked, ("listener", "PLAINTEXT")] == pytest.approx(0.5)
