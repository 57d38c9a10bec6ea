"""Counters of law violations: a broken policy moves its own, a good policy none."""

import pyarrow.parquet as pq
import pytest

from experiments.design.config import parse
from experiments.load import trace
from experiments.worlds.model.model_world import Model
from experiments.worlds.virtual.virtual_world import Virtual
from experiments.worlds.world import MachineTrial, RunFiles
from planes.laws import LAWS
from schedulers import POLICIES

NONE = dict.fromkeys(LAWS, 0)


def traffic(name, api, rate_per_s, mean_us, connections=50):
    return {
        "name": name,
        "connections": connections,
        "clients": 2,
        "arrivals": {"kind": "poisson", "rate_per_s": rate_per_s},
        "request": {"api": api},
        "service": {"kind": "exponential", "mean_us": mean_us},
    }


def violations(
    tmp_path, scheduler, *, control_per_s, duration_s=2.0, world="model", **keys
):
    """Run control, metadata and produce of 1 ms each; return the violations."""
    experiment = parse(
        {
            "experiment": {
                "name": "laws",
                "seed": 3,
                "blocks": 1,
                "baseline": "it",
                "world": world,
            },
            "workload": {
                "duration_s": duration_s,
                "traffic": [
                    traffic("control", "leader-and-isr", control_per_s, 1000.0),
                    traffic("metadata", "metadata", 300.0, 1000.0),
                    traffic("produce", "produce", 300.0, 1000.0),
                ],
            },
            "broker": {
                "set": {
                    "queued.max.requests": 400,
                    "num.io.threads": 4,
                    "doorkeeper.priority.ageing.ms": 50,
                    "doorkeeper.wfq.flow": "client.id",
                    "doorkeeper.wfq.weights": "control:4",
                    **{key.replace("_", "."): value for key, value in keys.items()},
                }
            },
            "limits": {"drain_s": 0.5},
            "arms": [{"name": "it", "scheduler": scheduler}],
        }
    )
    trial = MachineTrial(experiment=experiment, block=0, arm=experiment.arms[0])
    files = RunFiles(requests=tmp_path / "requests", samples=tmp_path / "samples")
    worlds = {"model": Model(lambda: None), "virtual": Virtual()}
    result = worlds[world].run(trial, trace.generate(experiment, 0), files)
    return dict(result.violations)


@pytest.mark.parametrize("scheduler", [*POLICIES, "planes"])
@pytest.mark.parametrize("control_per_s", [200.0, 1200.0])
def test_a_good_policy_breaks_no_law_at_ease_or_overloaded(
    tmp_path, scheduler, control_per_s
):
    found = violations(tmp_path, scheduler, control_per_s=control_per_s, duration_s=1.0)
    assert found == NONE


@pytest.mark.parametrize(
    ("policy", "law", "others"),
    [
        ("Backwards", "order", ()),
        ("Pitiless", "starvation", ()),
        ("Partial", "fairness", ("starvation",)),
    ],
)
def test_a_broken_policy_moves_the_counter_of_its_law(tmp_path, policy, law, others):
    found = violations(
        tmp_path,
        f"tests.model.broken_policies:{policy}",
        control_per_s=1200.0 if policy in ("Pitiless", "Partial") else 300.0,
        doorkeeper_starvation_ms=1500,
    )
    assert found[law] > 0
    assert {each for each, count in found.items() if count} <= {law, *others}


@pytest.mark.parametrize(
    ("scheduler", "law"),
    [("fifo", None), ("tests.model.broken_policies:Backwards", "order")],
)
def test_the_whole_broker_counts_the_same_laws(tmp_path, scheduler, law):
    found = violations(tmp_path, scheduler, control_per_s=300.0, world="virtual")
    assert {each for each, count in found.items() if count} == ({law} - {None})


@pytest.mark.parametrize("bound_ms", [50, 100])
def test_waits_beyond_the_bound_are_counted_one_by_one(tmp_path, bound_ms):
    found = violations(
        tmp_path, "fifo", control_per_s=1200.0, doorkeeper_starvation_ms=bound_ms
    )
    rows = pq.read_table(tmp_path / "requests").to_pandas()
    waits_ns = rows.dequeued_ns - rows.enqueued_ns
    expected = int((waits_ns > bound_ms * 1_000_000).sum())
    assert found["starvation"] == expected > 1000
