"""Each knob of a sensitivity study against its closed form or limit.

Other knobs are tested elsewhere: preemption points and overheads in
``test_model_theory.py`` and ``test_model_world.py``, locks in ``test_model_locks.py``,
arrivals and service mixes in ``tests/experiments/test_trace.py``, seats in set C of
``test_worlds_agree.py``.
"""

import statistics

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.design.config import parse
from experiments.load import trace
from experiments.theory.mg1 import MG1
from experiments.theory.shares import share_by_weight
from experiments.worlds.model.model_world import Model
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial, RunFiles

BLOCKS = 8
# Student's t for 7 degrees of freedom, 99.9 % two-sided.
T_999 = 5.408


def traffic(name, api, rate_per_s, service, **fields):
    return {
        "name": name,
        "connections": 400,
        "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
        "request": {"api": api},
        "service": service,
        **fields,
    }


def exponential(mean_us):
    return {"kind": "exponential", "mean_us": mean_us}


def experiment(entries, scheduler="fifo", *, model=None, keys=None, duration_s=12.0):
    return parse(
        {
            "experiment": {
                "name": "knobs",
                "seed": 11,
                "blocks": BLOCKS,
                "baseline": "it",
                "world": "model",
            },
            "workload": {"duration_s": duration_s, "traffic": entries},
            "broker": {"set": {"queued.max.requests": 10_000, **(keys or {})}},
            "model": model or {},
            "arms": [{"name": "it", "scheduler": scheduler}],
        }
    )


def rows(tmp_path, what, *, block=0, world=None):
    trial = MachineTrial(experiment=what, block=block, arm=what.arms[0])
    files = RunFiles(requests=tmp_path / "requests", samples=tmp_path / "samples")
    world = world or Model(lambda: None)
    result = world.run(trial, trace.generate(what, block), files)
    assert result.valid, result.reason
    return pq.read_table(files.requests).to_pandas()


def wait_ms(found, request_class="produce"):
    """Return the mean time in system minus service, from the intended instant."""
    those = found[found["class"] == request_class]
    return (
        float((those.client_done_ns - those.intended_ns - those.service_ns).mean())
        / 1e6
    )


def assert_mean(found, expected, *, widest=0.2):
    """Assert that the 99.9 % interval is narrow and contains the expectation."""
    half = T_999 * statistics.stdev(found) / len(found) ** 0.5
    assert half <= widest * expected
    assert statistics.fmean(found) == pytest.approx(expected, abs=half)


# ---- estimates ----------------------------------------------------------------------

TWO_SIZES = {"kind": "choice", "values_us": [500.0, 5000.0], "weights": [9.0, 1.0]}
# The same load as two classes by size: 630 and 70 per second, load 0.665.
BY_SIZE = MG1(rates=(0.63, 0.07), means=(0.5, 5.0), squares=(0.25, 25.0))


def spt(**model):
    entries = [traffic("produce", "produce", 700.0, TWO_SIZES)]
    return experiment(entries, "spt", model={"estimate": "true", **model})


def test_without_noise_spt_is_priority_by_size(tmp_path):
    found = [wait_ms(rows(tmp_path, spt(), block=block)) for block in range(BLOCKS)]
    short, long = BY_SIZE.nonpreemptive()
    assert_mean(found, 0.9 * short + 0.1 * long)


def test_with_much_noise_spt_is_an_order_without_sizes(tmp_path):
    """An order independent of sizes has the mean wait of FIFO (Kleinrock 1965)."""
    what = spt(estimate_sigma=30.0)
    found = [wait_ms(rows(tmp_path, what, block=block)) for block in range(BLOCKS)]
    assert_mean(found, BY_SIZE.fifo(), widest=0.3)


def test_more_noise_is_worse(tmp_path):
    means = [wait_ms(rows(tmp_path, spt(estimate_sigma=s))) for s in (0, 1, 2, 5)]
    assert means == sorted(means)


def test_an_order_by_size_does_not_see_a_bias(tmp_path):
    true = rows(tmp_path, spt()).client_done_ns
    for bias in (0.1, 10.0):
        biased = rows(tmp_path, spt(estimate_bias=bias)).client_done_ns
        assert true.equals(biased), bias


def test_noise_does_not_change_the_long_run_shares_of_wfq(tmp_path):
    """Overload: control and produce share the CPU by weight, three to one."""
    entries = [
        traffic("control", "leader-and-isr", 1200.0, exponential(1000.0)),
        traffic("produce", "produce", 1200.0, exponential(1000.0)),
    ]
    keys = {
        "doorkeeper.wfq.weights": "control:3",
        "doorkeeper.admission": "exempt",
        "doorkeeper.reader": "class-aware",
    }
    model = {"estimate": "true", "estimate_sigma": 1.5}
    found = rows(tmp_path, experiment(entries, "wfq", model=model, keys=keys))
    done = found[(found.remote_done_ns > 2e9) & (found.remote_done_ns < 12e9)]
    shares = done.groupby("class", observed=True).service_ns.sum() / 10e9
    expected = share_by_weight([1.2, 1.2], [3.0, 1.0])
    assert shares["control"] == pytest.approx(expected[0], rel=0.05)
    assert shares["produce"] == pytest.approx(expected[1], rel=0.05)


# ---- classes, connections -----------------------------------------------------------


def test_misclassified_data_delays_control_as_the_closed_form_says(tmp_path):
    """No preemption, loads 0.1 and 0.5, a quarter of the data misclassified."""
    entries = [
        traffic("control", "leader-and-isr", 100.0, exponential(1000.0)),
        traffic("produce", "produce", 125.0, exponential(4000.0)),
    ]
    what = experiment(
        entries, "np-priority", model={"misclassified": 0.25}, duration_s=40.0
    )
    found = [
        wait_ms(rows(tmp_path, what, block=block), "control") for block in range(BLOCKS)
    ]
    system = MG1.exponential((0.1, 0.125), (1.0, 4.0)).misclassified(0.25)
    assert_mean(found, system.nonpreemptive()[0])


@pytest.mark.parametrize(("connections", "meets"), [(40, False), (120, True)])
def test_the_queue_bound_is_met_only_by_more_connections(tmp_path, connections, meets):
    entries = [
        traffic(
            "produce", "produce", 1500.0, exponential(1000.0), connections=connections
        )
    ]
    keys = {"queued.max.requests": 50}
    rows(tmp_path, experiment(entries, keys=keys, duration_s=2.0))
    samples = pq.read_table(tmp_path / "samples").to_pandas()
    assert (samples.refused.max() > 0) == meets
    assert samples.queued.max() <= 50


# ---- slow readers -------------------------------------------------------------------


def test_a_slow_reader_holds_up_its_own_connection_and_no_other(tmp_path):
    entries = [
        traffic(
            "slow",
            "produce",
            1000.0,
            {"kind": "constant", "mean_us": 100.0},
            **{"class": "slow", "connections": 1, "read_ms": 4.9},
        ),
        traffic("produce", "produce", 100.0, {"kind": "constant", "mean_us": 100.0}),
    ]
    found = rows(tmp_path, experiment(entries, duration_s=10.0))
    slow = found[(found["class"] == "slow") & (found.client_done_ns < 10e9)]
    # One request at a time, 5 ms each: 200 per second, whatever the offered rate.
    assert len(slow) == pytest.approx(2000, rel=0.02)
    sending = slow.response_sent_ns - slow.response_dequeued_ns
    assert (sending == 4_900_000).all()
    others = found[found["class"] == "produce"]
    assert (others.client_done_ns - others.intended_ns).max() <= 100_000 * 4


def test_the_whole_broker_waits_for_a_slow_reader_with_that_connection_alone(tmp_path):
    """Responses exceed the socket buffers, and the client reads each 20 ms late."""
    wide = {"api": "fetch", "partition_max_bytes": 180_000}
    entries = [
        {
            "name": "slow",
            "class": "slow",
            "connections": 2,
            "arrivals": {"kind": "constant", "rate_per_s": 10.0},
            "request": wide,
            "read_ms": 20.0,
        },
        {
            "name": "fetch",
            "connections": 2,
            "arrivals": {"kind": "constant", "rate_per_s": 10.0},
            "request": wide,
        },
    ]
    what = experiment(entries, duration_s=1.0).with_world("virtual")
    found = rows(tmp_path, what, world=Virtual())
    assert (found.outcome == "ok").all()
    sending_ms = (found.response_sent_ns - found.response_dequeued_ns) / 1e6
    total_ms = (found.client_done_ns - found.intended_ns) / 1e6
    is_slow = found["class"] == "slow"
    # 180,000 bytes pass buffers of 64 KiB: the broker waits twice before it sends the
    # last piece, and the client reads that piece 20 ms later.
    assert np.allclose(sending_ms[is_slow], 40, atol=5)
    assert np.allclose(total_ms[is_slow], 60, atol=5)
    assert total_ms[~is_slow].max() < 5
