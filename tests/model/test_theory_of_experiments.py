"""The closed form of each arm of an experiment, or the reason why there is none.

Golden set A has rates .05 and .1875 per ms and means 1 and 4 ms. Golden set C has eight
servers, rates .085 and 1.615 per ms and mean 4 ms. The golden values were computed by
other software.
"""

import math

import pytest

from experiments.design.config import parse
from experiments.design.workload import (
    ChoiceService,
    ExponentialService,
    LognormalService,
    ParetoService,
)
from experiments.theory.mmc import MMc
from experiments.theory.predict import (
    BUSY_SERVERS,
    MEAN_WAIT,
    P99_WAIT,
    THROUGHPUT,
    WORK_X_WAIT,
    theory,
)
from experiments.theory.services import Moments, density, moments, segments_square

approx = pytest.approx
GOLDEN = 5e-5
APIS = {"control": "leader-and-isr", "produce": "produce", "metadata": "metadata"}


def exponential(mean_us):
    return {"kind": "exponential", "mean_us": mean_us}


def traffic(name, rate_per_s, mean_us, **settings):
    return {
        "name": name,
        "connections": settings.pop("connections", 1_000),
        "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
        "request": {"api": APIS[name], **settings.pop("request", {})},
        "service": exponential(mean_us),
        **settings,
    }


SET_A = (traffic("control", 50.0, 1000.0), traffic("produce", 187.5, 4000.0))
SET_C = (traffic("control", 85.0, 4000.0), traffic("produce", 1615.0, 4000.0))
BROKER = {"queued.max.requests": 2_000, "doorkeeper.priority.ageing.ms": 0}


def experiment(entries, scheduler="fifo", *, arm=None, broker=None, **sections):
    return parse(
        {
            "experiment": {
                "name": "t",
                "seed": 1,
                "blocks": 2,
                "baseline": "arm",
                "again": False,
            },
            "workload": {"duration_s": 10.0, "traffic": entries},
            "arms": [{"name": "arm", "scheduler": scheduler, **(arm or {})}],
            "broker": {"set": {**BROKER, **(broker or {})}},
            **sections,
        }
    )


def said(entries, scheduler="fifo", *, world="model", measured=None, **settings):
    subject = experiment(entries, scheduler, **settings)
    return theory(subject, subject.arms[0], world, measured)


def waits_ms(found, quantity=MEAN_WAIT):
    return tuple(
        it.value * 1000
        for name in APIS
        for it in found.predictions
        if it.quantity == quantity and it.reported == name
    )


def whole(found, quantity):
    (value,) = [it.value for it in found.predictions if it.quantity == quantity]
    return value


OPTIONS = "doorkeeper.scheduler.options"


@pytest.mark.parametrize(
    ("scheduler", "expected", "settings"),
    [
        ("fifo", (15.25, 15.25), {}),
        ("np-priority", (3.2105, 16.0526), {}),
        # The golden values are times in system, 1.0526 and 20.2632.
        ("priority", (0.0526316, 16.2632), {}),
        ("ageing", (4.4712, 15.9686), {"broker": {OPTIONS: "ratio:10"}}),
        ("ageing", (9.3846, 15.6410), {"arm": {"set": {OPTIONS: "ratio:2"}}}),
        # Processor sharing: the mean service time over 1 - load.
        ("ps", (4.0, 16.0), {"broker": {"doorkeeper.quantum.us": 20}}),
    ],
)
def test_set_a(scheduler, expected, settings):
    entries = SET_A
    if scheduler == "ageing":
        levels = {"doorkeeper.class.levels": "control:0,produce:1"}
        settings = {**settings, "broker": {**settings.get("broker", {}), **levels}}
    found = said(entries, scheduler, **settings)
    assert waits_ms(found) == approx(expected, rel=GOLDEN)
    assert whole(found, BUSY_SERVERS) == approx(0.8)
    assert not found.silences


@pytest.mark.parametrize(
    ("segment_us", "expected"), [(250.0, 0.1508), (1000.0, 0.4331), (4000.0, 1.3810)]
)
def test_set_a_with_preemption_points(segment_us, expected):
    """The golden values come from sampled segments, hence the tolerance of 1 %."""
    found = said(SET_A, "priority", model={"granularity_us": segment_us})
    assert waits_ms(found) == approx((expected,), rel=0.01)
    assert found.silences == ["only the first level's wait is known"]


def test_set_b_has_lognormal_data():
    lognormal = {"kind": "lognormal", "mean_us": 4000.0, "cv": 2.0}
    entries = (SET_A[0], {**SET_A[1], "service": lognormal, "connections": 10_000})
    broker = {"queued.max.requests": 20_000}
    assert waits_ms(said(entries, broker=broker)) == approx((37.75, 37.75))
    found = said(entries, "np-priority", broker=broker)
    assert waits_ms(found) == approx((7.9474, 39.7368), rel=GOLDEN)
    assert whole(found, WORK_X_WAIT) * 1000 == approx(30.2)


@pytest.mark.parametrize(
    ("scheduler", "seats", "expected"),
    [
        ("fifo", 8, (1.9086, 1.9086)),
        ("np-priority", 8, (0.29899, 1.99328)),
        ("priority", 8, (0.0, 2.0090)),
        ("planes", 7, (2.0606, 5.7781)),
    ],
)
def test_set_c(scheduler, seats, expected):
    broker = {"num.io.threads": seats}
    found = said(SET_C, scheduler, broker=broker, model={"server": "seats"})
    assert waits_ms(found) == approx(expected, rel=GOLDEN, abs=1e-6)
    assert whole(found, BUSY_SERVERS) == approx(6.8)


@pytest.mark.parametrize(("cpus", "quantiles"), [(8, 2), (6, 0)])
def test_threads_on_fewer_cpus_have_the_means_of_servers_and_not_the_quantiles(
    cpus, quantiles
):
    """M/M/8 and M/M/6 at 4.8 erlangs: Erlang's C formula."""
    entries = traffic("control", 85.0, 4000.0), traffic("produce", 1115.0, 4000.0)
    model = {"server": "threads", "cpus": cpus}
    found = said(entries, "fifo", broker={"num.io.threads": 8}, model=model)
    expected = MMc(servers=cpus, rates=(1200.0,), mean=0.004).fifo() * 1000
    assert waits_ms(found) == pytest.approx((expected, expected))
    assert len(waits_ms(found, P99_WAIT)) == quantiles


def test_under_threads_no_policy_preempts():
    found = said(SET_A, "priority", broker={"num.io.threads": 1}, model=THREADS)
    assert waits_ms(found) == waits_ms(said(SET_A, "np-priority"))


def test_the_99th_percentile_of_one_exponential_server():
    """M/M/1: the wait of the delayed requests is exponential with rate 1/b - rate."""
    found = said([traffic("produce", 800.0, 1000.0)])
    expected = math.log(0.8 / 0.01) / (1 - 0.8)
    assert waits_ms(found, P99_WAIT) == approx((expected,))


@pytest.mark.parametrize(
    ("policy", "mean_ms"), [("srpt", 2.353), ("psjf", 2.659), ("spt", 2.882)]
)
def test_orders_by_size_of_one_exponential_server(policy, mean_ms):
    """Known mean times in system of M/M/1 at load .8."""
    found = said(
        [traffic("produce", 800.0, 1000.0)], policy, model={"estimate": "true"}
    )
    assert waits_ms(found) == approx((mean_ms - 1,), rel=1e-3)


@pytest.mark.parametrize(
    ("share", "control_ms"), [(0.01, 3.236), (0.1, 3.486), (0.25, 4.0)]
)
def test_misclassified_requests_delay_control(share, control_ms):
    found = said(SET_A, "np-priority", model={"misclassified": share})
    control, produce = waits_ms(found)
    assert control == approx(control_ms, rel=2e-3)
    # Misclassified produce requests wait as control does. The waits weighted by load
    # have the same sum as without misclassification.
    assert 0.05 * control + 0.75 * produce == approx(12.2)


def test_live_moments_are_measured():
    subject = [{**entry, "service": None} for entry in SET_A]
    measured = {
        "control": Moments(mean=0.001, square=2e-6),
        "produce": Moments(mean=0.004, square=32e-6),
    }
    found = said(subject, world="live", measured=measured)
    assert waits_ms(found) == approx((15.25, 15.25))
    assert "was not measured" in said(subject, world="live").silences[0]


def test_parts_of_a_request_are_where_the_whole_broker_preempts():
    """E[sum of g^2] of sixteen equal parts is E[S^2] / 16."""
    parts = {"partitions": 16, "topic_partitions": 16}
    entries = (SET_A[0], {**SET_A[1], "request": {"api": "produce", **parts}})
    found = said(
        entries, "priority", world="virtual", broker={"doorkeeper.quantum.us": 20}
    )
    residual = 0.05 + 0.1875 * 32 / 16 / 2
    assert waits_ms(found) == approx((residual / (1 - 0.05),))
    # A request of one part has no preemption point.
    assert waits_ms(said(SET_A, "priority", world="virtual")) == approx(
        (3.2105, 16.0526), rel=GOLDEN
    )


# ---- overload -----------------------------------------------------------------------


OVERLOAD = (
    traffic("control", 50.0, 1000.0),
    traffic("metadata", 400.0, 1000.0, connections=300),
    traffic("produce", 300.0, 4000.0, connections=100),
)


@pytest.mark.parametrize(
    ("scheduler", "broker", "expected"),
    [
        # Round robin over connections, 3:1, would give metadata 407 of the rest.
        ("fifo", {}, (50.0, 400.0, 137.5)),
        ("priority", {}, (50.0, 400.0, 137.5)),
        ("wfq", {"doorkeeper.wfq.weights": "produce:3"}, (50.0, 237.5, 178.125)),
    ],
)
def test_shares_of_an_overloaded_server(scheduler, broker, expected):
    found = said(OVERLOAD, scheduler, broker=broker)
    shares = [it.value for it in found.predictions if it.quantity == THROUGHPUT]
    assert shares == approx(expected)


def test_connections_limit_how_hard_a_class_presses_a_fifo():
    """A tenth of the connections gets a tenth of the turns, whatever the rates."""
    entries = (
        traffic("metadata", 2000.0, 1000.0, connections=10),
        traffic("produce", 2000.0, 1000.0, connections=90),
    )
    found = said(entries)
    assert [it.value for it in found.predictions] == approx([100.0, 900.0])


# ---- arms without a closed form -----------------------------------------------------


THREADS = {"server": "threads", "cpus": 8 - 1}
TOO_MUCH = traffic("produce", 400.0, 4000.0)


def bursts(entry):
    arrivals = {"kind": "bursts", "rate_per_s": 9.0, "every_s": 2.0, "on_s": 1.0}
    return {**entry, "arrivals": arrivals}


@pytest.mark.parametrize(
    ("entries", "scheduler", "settings", "why"),
    [
        ((bursts(SET_A[0]),), "fifo", {}, "are not Poisson (bursts)"),
        (({**SET_A[0], "stop_s": 5.0},), "fifo", {}, "not for the whole run"),
        (SET_A, "planes", {}, "take turns at one CPU"),
        (SET_A, "wfq", {}, "wfq has no closed form"),
        (SET_A, "fifo", {"model": {"switch_us": 1.0}}, "switch_us = 1.0"),
        (SET_A, "fifo", {"broker": {"queued.max.requests": 50}}, "may fill"),
        (SET_A, "srpt", {}, "sizes are learned"),
        (SET_A, "ps", {}, "the quantum exceeds"),
        (SET_C, "ageing", {"model": {"server": "seats"}}, "several servers"),
        (SET_A, "ageing", {"world": "virtual"}, "ages count from when"),
        (SET_C, "planes", {"model": THREADS}, "threads of two planes share CPUs"),
        (SET_A, "fifo", {"model": THREADS}, "services are not all alike"),
        (SET_C, "priority", {"model": THREADS}, "not picked as they come"),
        ((TOO_MUCH,), "fifo", {"model": {"server": "threads"}}, "threads take turns"),
        (
            SET_A,
            "fifo",
            {"virtual": {"latency_us": [0, 9]}, "world": "virtual"},
            "travel",
        ),
        (
            SET_A,
            "priority",
            {"broker": {"doorkeeper.priority.ageing.ms": 50}},
            "bound on starvation",
        ),
        (
            (traffic("produce", 187.5, 4000.0, connections=20),),
            "fifo",
            {},
            "too few connections",
        ),
        (
            (traffic("produce", 400.0, 4000.0),),
            "fifo",
            {"broker": {"queued.max.requests": 100}},
            "readers decide",
        ),
    ],
)
def test_a_missing_closed_form_is_explained(entries, scheduler, settings, why):
    found = said(entries, scheduler, **settings)
    assert len(found.silences) == 1
    assert why in found.silences[0]
    assert not waits_ms(found)


# ---- service times ------------------------------------------------------------------


@pytest.mark.parametrize(
    "service",
    [
        ExponentialService(kind="exponential", mean_us=700.0),
        LognormalService(kind="lognormal", mean_us=700.0, cv=1.5),
        ParetoService(kind="pareto", alpha=1.5, low_us=100.0, high_us=10_000.0),
        ParetoService(kind="pareto", alpha=2.0, low_us=100.0, high_us=10_000.0),
    ],
)
def test_moments_are_those_of_the_density(service):
    """Integrate by the trapezoid rule in the logarithm of size."""
    found, curve = moments(service), density(service)
    count, low = 40_000, 1e-9
    step = math.log(curve.largest / low) / count
    sizes = [low * math.exp(step * k) for k in range(count + 1)]
    for power, expected in ((0, 1.0), (1, found.mean), (2, found.square)):
        total = step * sum(curve.density(x) * x ** (power + 1) for x in sizes)
        assert total == approx(expected, rel=2e-3)
    # The mean is the area under the survival function.
    area = step * sum(curve.survival(x) * x for x in sizes)
    assert area == approx(found.mean, rel=2e-3)


def test_moments_of_a_choice_and_segments_of_a_constant():
    choice = ChoiceService(kind="choice", values_us=(100.0, 1000.0), weights=(9.0, 1.0))
    assert moments(choice).mean == approx(190e-6)
    assert moments(choice).square == approx((0.9 * 0.01 + 0.1) * 1e-6)
    assert density(choice) is None
    assert segments_square(choice, 1e-4) is None
