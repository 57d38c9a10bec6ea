"""Traces: reproducible from the seed, with arrival counts of the closed forms.

The tolerance of a count is five standard deviations of its closed form, so a correct
generator fails for one seed in a million. The seeds are fixed.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from experiments.design.arrival_processes import (
    Arrivals,
    Bursts,
    Constant,
    Mmpp,
    OnOff,
    Poisson,
)
from experiments.design.config import parse
from experiments.design.requests import LOADS
from experiments.design.workload import (
    ChoiceService,
    ConstantService,
    ExponentialService,
    LognormalService,
    ParetoService,
    PublishedService,
    Service,
)
from experiments.load import arrivals, frames, trace
from experiments.load.arrivals import SECOND_NS
from experiments.load.senders import senders


def experiment(seed: int = 7, **control: Any) -> Any:
    return parse(
        {
            "experiment": {"name": "t", "seed": seed, "blocks": 3, "baseline": "fifo"},
            "workload": {
                "duration_s": 2.0,
                "traffic": [
                    {
                        "name": "control",
                        "connections": 4,
                        "clients": 2,
                        "arrivals": {"kind": "poisson", "rate_per_s": 300},
                        "request": {"api": "leader-and-isr", "partitions": 2},
                        **control,
                    },
                    {
                        "name": "load",
                        "class": "bulk",
                        "connections": 6,
                        "arrivals": {"kind": "constant", "rate_per_s": 50},
                        "request": {
                            "api": "produce",
                            "partitions": 3,
                            "topic_partitions": 6,
                        },
                    },
                ],
            },
            "arms": [{"name": "fifo", "scheduler": "fifo"}],
        }
    )


def drawn(process: Arrivals, seconds: int, seed: int = 11) -> list[int]:
    rng = random.Random(seed)
    return list(arrivals.instants(process, rng, 0, seconds * SECOND_NS))


def assert_count(found: int, mean: float, variance: float) -> None:
    assert abs(found - mean) <= 5 * math.sqrt(variance), (found, mean)


# ---- arrivals against closed forms ----


def test_poisson_has_its_rate_and_exponential_gaps() -> None:
    at = drawn(Poisson(kind="poisson", rate_per_s=500.0), 60)
    assert_count(len(at), 30_000, 30_000)
    gaps_s = np.diff(at) / SECOND_NS
    assert stats.kstest(gaps_s, stats.expon(scale=1 / 500).cdf).pvalue > 1e-4


def test_constant_has_equal_gaps_from_a_random_phase() -> None:
    at = drawn(Constant(kind="constant", rate_per_s=400.0), 5)
    assert len(at) == 2000
    assert set(np.diff(at)) <= {2_499_999, 2_500_000, 2_500_001}
    other = drawn(Constant(kind="constant", rate_per_s=400.0), 5, seed=12)
    assert at[0] != other[0]


def test_bursts_have_both_rates_in_their_windows() -> None:
    process = Bursts(
        kind="bursts", rate_per_s=900.0, idle_rate_per_s=30.0, every_s=1.0, on_s=0.25
    )
    at = np.array(drawn(process, 80))
    on = (at % SECOND_NS) < SECOND_NS // 4
    assert_count(int(on.sum()), 80 * 0.25 * 900, 80 * 0.25 * 900)
    assert_count(int((~on).sum()), 80 * 0.75 * 30, 80 * 0.75 * 30)
    assert process.mean_rate_per_s() == pytest.approx(0.25 * 900 + 0.75 * 30)


def test_bursts_of_even_gaps_are_all_of_one_size() -> None:
    process = Bursts(
        kind="bursts", rate_per_s=5500.0, gaps="even", every_s=0.06, on_s=0.01
    )
    at = np.array(drawn(process, 3))
    assert (at % 60_000_000 < 10_000_000).all()
    assert set(np.bincount(at // 60_000_000)) == {55}


def test_mmpp_has_the_rate_and_the_burstiness_of_its_closed_form() -> None:
    process = Mmpp(kind="mmpp", rates_per_s=(200.0, 1000.0), dwell_s=(0.6, 0.2))
    rate, span_s = 400.0, 600
    assert process.mean_rate_per_s() == pytest.approx(rate)
    counts = np.bincount(
        np.array(drawn(process, span_s)) // SECOND_NS, minlength=span_s
    )
    # Two-state MMPP: Var N(t) = rate t + 2 A (t/r - (1 - exp(-r t)) / r^2), with
    # r = 1/0.6 + 1/0.2 and A = p0 p1 (rate0 - rate1)^2.
    r, a = 1 / 0.6 + 1 / 0.2, 0.75 * 0.25 * 800**2
    variance = rate + 2 * a * (1 / r - (1 - math.exp(-r)) / r**2)
    assert_count(int(counts.sum()), rate * span_s, 2 * a / r * span_s + rate * span_s)
    assert np.var(counts) == pytest.approx(variance, rel=0.25)


@pytest.mark.parametrize("sources", [1, 4])
def test_on_off_sources_have_their_rate_and_index_of_dispersion(sources: int) -> None:
    process = OnOff(
        kind="on-off", rate_per_s=800.0, on_s=0.1, off_s=0.3, sources=sources
    )
    rate, span_s = 200.0 * sources, 400
    assert process.mean_rate_per_s() == pytest.approx(rate)
    counts = np.bincount(
        np.array(drawn(process, span_s)) // SECOND_NS, minlength=span_s
    )
    # As above, with a silent second state; independent sources add their variances.
    r, a = 1 / 0.1 + 1 / 0.3, 0.25 * 0.75 * 800**2
    extra = 2 * a * (1 / r - (1 - math.exp(-r)) / r**2)
    variance = rate + sources * extra
    assert_count(int(counts.sum()), rate * span_s, variance * span_s)
    assert np.var(counts) / rate == pytest.approx(variance / rate, rel=0.25)


@pytest.mark.parametrize(
    "process",
    [
        Poisson(kind="poisson", rate_per_s=1000.0),
        Constant(kind="constant", rate_per_s=777.0),
        Bursts(kind="bursts", rate_per_s=500.0, every_s=0.3, on_s=0.1),
        Mmpp(kind="mmpp", rates_per_s=(0.0, 900.0), dwell_s=(0.1, 0.1)),
        OnOff(kind="on-off", rate_per_s=300.0, on_s=0.05, off_s=0.1, sources=9),
    ],
)
def test_instants_are_ordered_and_within_their_bounds(process: Arrivals) -> None:
    found = list(arrivals.instants(process, random.Random(3), 500, 2 * SECOND_NS))
    assert found == sorted(found)
    assert found
    assert min(found) >= 500
    assert max(found) < 2 * SECOND_NS


def test_a_rate_of_zero_has_no_arrivals() -> None:
    assert drawn(Poisson(kind="poisson", rate_per_s=0.0), 5) == []
    assert drawn(Constant(kind="constant", rate_per_s=0.0), 5) == []


PARETO = ParetoService(kind="pareto", alpha=1.1, low_us=10.0, high_us=10_000.0)


@pytest.mark.parametrize(
    ("service", "mean_us", "variance"),
    [
        (ConstantService(kind="constant", mean_us=40.0), 40.0, 0.0),
        (ExponentialService(kind="exponential", mean_us=40.0), 40.0, 1600.0),
        (
            ChoiceService(kind="choice", values_us=(1.0, 100.0), weights=(3.0, 1.0)),
            25.75,
            0.75 * 24.75**2 + 0.25 * 74.25**2,
        ),
        # 0.995 x 0.5 us + 0.005 x 500 us; E[S^2] = 1250.24875 us^2.
        (
            PublishedService(kind="published", mix="extreme-bimodal", scale=10.0),
            29.975,
            100 * (1250.24875 - 2.9975**2),
        ),
        # 8.8 + 2.508 + 3.52 + 0.24 + 4; E[S^2] = 901.4956 us^2.
        (
            PublishedService(kind="published", mix="tpc-c", scale=1.0),
            19.068,
            901.4956 - 19.068**2,
        ),
        (
            PublishedService(kind="published", mix="rocksdb", scale=1.0),
            318.25,
            316.75**2,
        ),
        (
            PublishedService(kind="published", mix="high-bimodal", scale=2.0),
            101.0,
            99.0**2,
        ),
        (LognormalService(kind="lognormal", mean_us=50.0, cv=2.0), 50.0, 10_000.0),
        (
            PARETO,
            float(stats.truncpareto(1.1, 1000, scale=10).mean()),
            float(stats.truncpareto(1.1, 1000, scale=10).var()),
        ),
    ],
)
def test_demands_have_their_mean(
    service: Service, mean_us: float, variance: float
) -> None:
    draw = arrivals.demands(service, random.Random(5))
    count = 40_000
    found_us = sum(draw() for _ in range(count)) / count / 1000
    assert abs(found_us - mean_us) <= 5 * math.sqrt(variance / count) + 1e-3


def test_bounded_pareto_has_its_distribution() -> None:
    draw = arrivals.demands(PARETO, random.Random(5))
    found_us = [draw() / 1000 for _ in range(5000)]
    law = stats.truncpareto(1.1, 1000, scale=10)
    assert stats.kstest(found_us, law.cdf).pvalue > 1e-4


# ---- traces ----


def test_the_same_seed_and_block_give_the_same_trace() -> None:
    one, two = (trace.generate(experiment(), 1) for _ in range(2))
    assert one.sha256 == two.sha256
    assert one.table.equals(two.table)


def test_another_block_or_seed_gives_another_trace() -> None:
    shas = {
        trace.generate(experiment(seed), block).sha256
        for seed in (7, 8)
        for block in range(3)
    }
    assert len(shas) == 6


def test_one_entrys_arrivals_do_not_depend_on_another_entry() -> None:
    def load_instants(built: Any) -> list[int]:
        table = trace.generate(built, 0).table
        wanted = np.array(table["traffic"].to_pylist()) == "load"
        return list(table["intended_ns"].to_numpy()[wanted])

    faster = experiment(arrivals={"kind": "poisson", "rate_per_s": 900})
    assert load_instants(faster) == load_instants(experiment())


def test_rows_are_in_order_of_arrival_and_sequences_count_per_connection() -> None:
    drawn_trace = trace.generate(experiment(), 0)
    intended = drawn_trace.column("intended_ns")
    assert intended == sorted(intended)
    assert drawn_trace.column("request_id") == list(range(len(drawn_trace)))
    seen: dict[int, int] = {}
    for connection, sequence in zip(
        drawn_trace.column("connection"), drawn_trace.column("sequence"), strict=True
    ):
        assert sequence == seen.get(connection, -1) + 1
        seen[connection] = sequence


def test_connections_and_flows_belong_to_their_entry() -> None:
    drawn_trace = trace.generate(experiment(), 0)
    rows = zip(
        drawn_trace.column("class"),
        drawn_trace.column("flow"),
        drawn_trace.column("connection"),
        drawn_trace.column("api_key"),
        strict=True,
    )
    assert set(rows) == {
        *(("control", f"control-{n % 2:04d}", n, 4) for n in range(4)),
        *(("bulk", "load-0000", n, 0) for n in range(4, 10)),
    }


def test_sizes_are_those_of_the_frames_that_are_sent() -> None:
    built = experiment()
    drawn_trace = trace.generate(built, 0)
    connections = drawn_trace.column("connection")
    entries, sequences = drawn_trace.column("traffic"), drawn_trace.column("sequence")
    places = list(map(frames.Place, entries, connections, sequences))
    sent = frames.frames(places, built.workload, frames.ANY_NODE, timestamp_ms=5)
    assert drawn_trace.column("size_bytes") == [sum(map(len, each)) for each in sent]


def test_a_stored_trace_reads_back_with_its_hash(tmp_path: Path) -> None:
    stored = trace.generate(experiment(), 2)
    trace.store(stored, tmp_path / "t.parquet")
    read = trace.read(tmp_path / "t.parquet", 2)
    assert (read.block, read.sha256) == (2, stored.sha256)
    assert read.column("flow") == stored.column("flow")
    assert read.table.schema.equals(trace.TRACE_SCHEMA)


def test_the_hash_changes_with_a_single_nanosecond() -> None:
    stored = trace.generate(experiment(), 0)
    columns = [stored.column(name) for name in trace.TRACE_SCHEMA.names]
    assert trace.build(0, columns).sha256 == stored.sha256
    columns[1][5] += 1
    assert trace.build(0, columns).sha256 != stored.sha256


def test_demands_are_drawn_where_an_entry_has_a_service() -> None:
    built = experiment(service={"kind": "exponential", "mean_us": 20.0})
    table = trace.generate(built, 0).table
    control = np.array(table["traffic"].to_pylist()) == "control"
    demand_ns = table["demand_ns"].to_numpy()
    assert (demand_ns[control] > 0).all()
    assert (demand_ns[~control] == 0).all()


# ---- the load's requests ----


def test_control_epochs_rise_on_partitions_that_no_other_connection_owns() -> None:
    from broker.protocol.wire import codec
    from broker.protocol.wire.header import parse_request_header

    built = experiment()
    drawn_trace = trace.generate(built, 0)
    connections = drawn_trace.column("connection")
    entries, sequences = drawn_trace.column("traffic"), drawn_trace.column("sequence")
    places = list(map(frames.Place, entries, connections, sequences))
    sent = frames.frames(places, built.workload, frames.ANY_NODE, timestamp_ms=5)
    owners: dict[int, int] = {}
    epochs: dict[int, int] = {}
    for number, connection in enumerate(connections):
        frame = b"".join(sent[number])[4:]
        header = parse_request_header(frame)
        assert header.correlation_id == number
        if header.api_key != 4:
            continue
        request = codec.decode(4, header.api_version, frame, header.body_offset)
        for state in request.topic_states[0].partition_states:
            assert owners.setdefault(state.partition_index, connection) == connection
            assert state.leader_epoch > epochs.get(state.partition_index, 0)
            epochs[state.partition_index] = state.leader_epoch
    assert set(epochs) == set(range(8))
    assert frames.topics(built.workload)["load-control"] == 8


def test_produce_connections_cover_every_partition_of_the_topic() -> None:
    from broker.protocol.wire import codec
    from broker.protocol.wire.header import parse_request_header

    built = experiment()
    covered = set()
    for sender in senders(built.workload)[4:]:
        (frame,) = frames.frames(
            [frames.Place("load", sender.number, 0)],
            built.workload,
            frames.ANY_NODE,
            timestamp_ms=5,
        )
        body = b"".join(frame)[4:]
        header = parse_request_header(body)
        request = codec.decode(0, header.api_version, body, header.body_offset)
        indexes = [part.index for part in request.topic_data[0].partition_data]
        assert len(set(indexes)) == 3
        covered.update(indexes)
    assert covered == set(range(6))


@pytest.mark.parametrize("api", LOADS)
def test_the_broker_gives_requests_the_class_they_are_reported_under(api: str) -> None:
    from broker.handling.api_registry import APIS
    from broker.protocol.wire.header import parse_request_header
    from broker.requests.classifier import Classifier
    from broker.requests.entitlement import CONTROLLER

    built = experiment(request={"api": api})
    entry = built.workload.traffic[0]
    (frame,) = frames.frames(
        [frames.Place("control", 0, 0)], built.workload, frames.ANY_NODE, timestamp_ms=5
    )
    body = b"".join(frame)[4:]
    peer = SimpleNamespace(connection_id=0, entitlement=CONTROLLER)
    found = Classifier(APIS).classify(parse_request_header(body), body, peer)
    assert found[0] == entry.reported_class
