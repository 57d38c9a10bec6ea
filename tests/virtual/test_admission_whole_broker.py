"""Admission in the whole broker: refused requests and throttled clients.

Real APIs and frames in virtual time. A request gets its normal response, a retriable
error, or a throttle time, which the broker enforces whether or not the client observes
it.
"""

from collections import Counter
from datetime import timedelta

import pytest

from broker.observation.metrics.collector import Collector, Sources
from broker.observation.metrics.request_metrics import RequestMetrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import encode_request, request_type
from simulation.virtual_time.memory_network import MemoryStream
from tests.broker.apis.requests import (
    SECONDS_30,
    batch,
    entity,
    new_topic,
    produce_fields,
    values_of,
)
from tests.virtual.kafka import (
    SETTINGS,
    answer,
    ask,
    create_topic,
    fetch_all,
    kafka,
)
from tests.virtual.test_virtual_experiment import experiment, run
from tests.virtual.world import MS, in_world

SLICE_MS = 0.05


def in_kafka(scenario, **settings):
    keys = {name.replace("_", "."): value for name, value in settings.items()}
    return in_world(scenario, {**SETTINGS, **keys}, application=kafka)


# ---- token bucket -------------------------------------------------------------------

BUCKET = {
    "doorkeeper_admission": "token-bucket",
    "doorkeeper_admission_rates_per_s": "metadata:100,admin:10",
    "doorkeeper_admission_burst_requests": "metadata:3,admin:2",
}


def test_a_client_that_ignores_its_throttle_time_is_not_read_until_it_is_over():
    """A burst of three is free; then one request per 10 ms, as responses announce."""
    announced, answered_ms = [], []

    async def scenario(world):
        stream = world.connect()
        for _ in range(8):
            found = await ask(stream, ApiKey.METADATA, 12)
            announced.append(found.throttle_time.total_seconds() * 1000)
            answered_ms.append(world.clock.now_ns() / MS)
        return world.server.topology.planes[0].held_back

    held_back = in_kafka(scenario, **BUCKET)
    assert held_back == {("metadata", "throttled"): 5}
    assert announced[:3] == [0, 0, 0]
    assert all(8 <= each <= 10 for each in announced[3:])
    # Request n after the burst is answered at once, n x 10 ms after the first.
    assert answered_ms[3] < 5 * SLICE_MS
    for number, at_ms in enumerate(answered_ms[4:], start=1):
        assert at_ms == pytest.approx(number * 10, abs=5 * SLICE_MS)


def test_another_class_and_control_are_served_meanwhile():
    async def scenario(world):
        stream, other = world.connect(), world.connect()
        for _ in range(4):
            await ask(stream, ApiKey.METADATA, 12)
        begun_ns = world.clock.now_ns()
        found = await ask(other, ApiKey.LIST_GROUPS, 4)
        return found.throttle_time, (world.clock.now_ns() - begun_ns) / MS

    throttle_time, took_ms = in_kafka(scenario, **BUCKET)
    assert not throttle_time
    assert took_ms < 5 * SLICE_MS


def test_a_refusable_request_over_quota_is_refused_and_makes_no_topic():
    """KIP-599: strict for CreateTopics v6, permissive for v5."""

    async def scenario(world):
        errors = Counter()
        streams = [world.connect() for _ in range(6)]
        for number, stream in enumerate(streams):
            found = await ask(
                stream,
                ApiKey.CREATE_TOPICS,
                6 if number < 5 else 5,
                topics=[new_topic(f"t{number}")],
                timeout=SECONDS_30,
            )
            errors[found.topics[0].error_code] += 1
        listed = await ask(world.connect(), ApiKey.METADATA, 12, topics=None)
        return errors, [topic.name for topic in listed.topics]

    errors, names = in_kafka(scenario, **BUCKET)
    # Two of the burst, and the request that overdraws the bucket; v5 is served.
    assert errors == {ErrorCode.none: 4, ErrorCode.throttling_quota_exceeded: 2}
    assert names == ["t0", "t1", "t2", "t5"]


# ---- refused requests ---------------------------------------------------------------


async def burst(world, requests, limit_ms=30_000):
    """Produce a record on each of ``requests`` connections at the same time.

    Return the count of each error code, and the values in the log.
    """
    await create_topic(world.connect(), 1)
    port = world.server.ports["PLAINTEXT"]
    connections = [world.network.connect(port) for _ in range(requests)]
    streams = [MemoryStream(connection) for connection in connections]
    for stream in streams:
        await ask(stream, ApiKey.LIST_GROUPS, 4)
    for number, connection in enumerate(connections):
        fields = produce_fields({("t", 0): batch(b"%d" % number)})
        fields["timeout"] = timedelta(milliseconds=limit_ms)
        body = entity(request_type(ApiKey.PRODUCE, 9), fields)
        connection.send(encode_request(ApiKey.PRODUCE, 9, number, "test", body))
    errors = Counter()
    for stream in streams:
        found = await answer(stream, ApiKey.PRODUCE, 9)
        errors[found.responses[0].partition_responses[0].error_code] += 1
    records = await fetch_all(world.connect(), 1)
    return errors, values_of(records[0])


def test_a_producers_own_time_limit_is_kept():
    """100 simultaneous requests of 50 us: a limit of 1 ms admits about 20."""

    async def scenario(world):
        return await burst(world, 100, limit_ms=1)

    errors, values = in_kafka(
        scenario, doorkeeper_admission="deadline", queued_max_requests="500"
    )
    assert sum(errors.values()) == 100
    assert 15 <= errors[ErrorCode.none] <= 20
    assert set(errors) == {ErrorCode.none, ErrorCode.request_timed_out}
    # The log has exactly the records that were answered without an error.
    assert len(values) == errors[ErrorCode.none]


def test_under_controlled_delay_a_standing_queue_is_cut():
    """One seat, 50 us per request, and a target of 1 ms for the standing queue."""

    async def scenario(world):
        return await burst(world, 100)

    errors, values = in_kafka(
        scenario,
        doorkeeper_admission="codel",
        doorkeeper_admission_target_ms="1",
        doorkeeper_admission_interval_ms="2",
        queued_max_requests="500",
    )
    assert sum(errors.values()) == 100
    assert set(errors) == {ErrorCode.none, ErrorCode.request_timed_out}
    assert 15 <= errors[ErrorCode.none] <= 60
    assert len(values) == errors[ErrorCode.none]


def test_admission_is_counted_by_class_and_verdict():
    async def scenario(world):
        errors, _ = await burst(world, 60, limit_ms=1)
        collector = Collector(
            Sources(
                requests=RequestMetrics(),
                channels=tuple(world.server.request_channels.values()),
                processors=world.server.processors,
                pool=None,
                now_ns=world.clock.now_ns,
            )
        )
        return errors, list(filter(None, collector.collect()))

    errors, metrics = in_kafka(scenario, doorkeeper_admission="deadline")
    found = {
        it.labels["verdict"]: it
        for it in metrics
        if it.name == "doorkeeper_admission_held_back"
    }
    # A request whose deadline has passed, or will pass within a slice.
    assert found.keys() <= {"expired", "hopeless"}
    for verdict, metric in found.items():
        assert metric.kind == "counter"
        labels = {"plane": "data", "class": "produce", "verdict": verdict}
        assert metric.labels == labels
    counted = sum(metric.value for metric in found.values())
    assert counted == errors[ErrorCode.request_timed_out] > 0


# ---- in an experiment ---------------------------------------------------------------

RULES = {
    "block": {},
    "token-bucket": {"doorkeeper.admission.rates.per.s": "produce:1000"},
    "codel": {},
    "deadline": {"doorkeeper.admission.deadline.ms": "produce:20"},
}


@pytest.mark.parametrize("rule", RULES)
def test_every_request_of_an_overload_is_accounted_for(tmp_path, rule):
    """Offer twice the broker's capacity for half a second."""
    load = {
        "name": "load",
        "connections": 300,
        "arrivals": {"kind": "poisson", "rate_per_s": 4000.0},
        "request": {"api": "produce"},
    }
    keys = {"doorkeeper.admission": rule, **RULES[rule]}
    built = experiment(
        [load],
        0.5,
        virtual={"slice_us": {"produce": 500.0}},
        limits={"drain_s": 4.0},
        broker={"set": keys},
    )
    result, table = run(built, "fifo", tmp_path)
    counts = result.counts
    outcomes = ("ok", "error", "timeout", "unfinished")
    assert sum(counts[name] for name in outcomes) == counts["sent"] == table.num_rows
    assert counts["unfinished"] == 0
    if rule in ("codel", "deadline"):
        codes = Counter(table["error_code"].to_pylist())
        assert codes[int(ErrorCode.request_timed_out)] == counts["timeout"] > 200
    else:
        assert counts["ok"] == counts["sent"]


def test_an_arm_with_quotas_records_for_how_long_clients_are_throttled(tmp_path):
    """The quota of ten seconds, 100 kB, passes at first: about 400 requests."""
    load = {
        "name": "load",
        "connections": 100,
        "arrivals": {"kind": "poisson", "rate_per_s": 2000.0},
        "request": {"api": "produce"},
    }
    quota = {"doorkeeper.client.quotas": "users/<default>/producer_byte_rate=10000"}
    throttled = {}
    for name, keys in (("none", {}), ("quota", quota)):
        built = experiment([load], 0.5, broker={"set": keys})
        _, table = run(built, "fifo", tmp_path / name)
        rows = table.select(["size_bytes", "throttle_ns", "dequeued_ns"]).to_pylist()
        served = sorted(
            (row for row in rows if row["dequeued_ns"] is not None),
            key=lambda row: row["dequeued_ns"],
        )
        throttled[name] = [row["throttle_ns"] for row in served]
        total = 0
        for row in served:
            total += row["size_bytes"]
            if name == "none" or total <= 100_000:
                assert row["throttle_ns"] == 0
            elif total > 110_000:
                # At most one more second of the quota has passed meanwhile.
                assert row["throttle_ns"] > 0
    assert not any(throttled["none"])
    assert any(throttled["quota"])
