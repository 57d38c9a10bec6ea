"""The fault timeline: validation and its messages, and scaling of a load."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.design.capacity import on_machine
from experiments.design.config import parse
from experiments.design.config_errors import ExperimentError
from experiments.design.faults import ScaleLoad
from experiments.load import trace
from experiments.load.pace import Pace, Scale

TRAFFIC: list[dict[str, Any]] = [
    {
        "name": "load",
        "connections": 8,
        "arrivals": {"kind": "poisson", "rate_per_s": 2000.0},
        "request": {"api": "produce"},
    },
    {
        "name": "meta",
        "arrivals": {"kind": "poisson", "rate_per_s": 50.0},
        "request": {"api": "metadata"},
    },
]
ELECT = {"kind": "elect", "at_s": 1.0}
SCALE = {"kind": "scale-load", "at_s": 0.5, "until_s": 1.5, "factor": 3.0}


def content(*faults: Any, world: str = "virtual", **more: Any) -> dict[str, Any]:
    return {
        "experiment": {
            "name": "small",
            "seed": 7,
            "blocks": 1,
            "baseline": "fifo",
            "world": world,
        },
        "workload": {"duration_s": 2.0, "traffic": TRAFFIC},
        "arms": [{"name": "fifo", "scheduler": "fifo"}],
        "virtual": {"server": "seats"},
        "faults": list(faults),
        **more,
    }


CUT = {"kind": "cut", "at_s": 1.0, "until_s": 1.5, "between": [0, 1]}
CLUSTER: dict[str, Any] = {"cluster": {"brokers": 2}}


@pytest.mark.parametrize(
    ("fault", "world", "more", "words"),
    [
        (ELECT, "virtual", {}, "'elect' needs a [cluster]"),
        ({**ELECT, "leader": 2}, "virtual", CLUSTER, "there is no broker 2, only 0"),
        ({**ELECT, "at_s": 2.0}, "virtual", CLUSTER, "after the run's end"),
        (
            ELECT,
            "kraft",
            {},
            "'elect' cannot happen in the kraft world, for its run has one",
        ),
        (
            {"kind": "fill", "at_s": 1.0, "until_s": 1.5, "broker": 0},
            "model",
            {},
            "'fill' cannot happen in the model world",
        ),
        ({**SCALE, "traffic": "lead"}, "virtual", {}, "no traffic is called 'lead'"),
        ({**SCALE, "until_s": 0.5}, "virtual", {}, "until_s = 0.5 is not after at_s"),
        ({"kind": "explode", "at_s": 1.0}, "virtual", {}, "'explode'"),
        ({**ELECT, "brokr": 1}, "virtual", CLUSTER, "unknown key"),
        (ELECT, "kafka", {}, "'elect' needs a [cluster]"),
        (
            CUT,
            "kafka",
            CLUSTER,
            "'cut' cannot happen in the kafka world, for its run is rehearsed first, "
            "and only an election can be undone; in live and virtual it can",
        ),
        ({**CUT, "between": [1, 1]}, "virtual", CLUSTER, "between = [1, 1] names a"),
        (
            {"kind": "reassign", "at_s": 1.0, "replicas": [0, 0]},
            "live",
            CLUSTER,
            "replicas = [0, 0] names a broker twice",
        ),
        ({"kind": "rebalance", "at_s": 1.0}, "model", {}, "the model has one"),
        (ELECT, "model", {}, "'elect' cannot happen in the model world"),
        ({"kind": "stop", "at_s": 1.0, "broker": 0}, "kraft", {}, "left alone"),
    ],
)
def test_impossible_faults_are_refused_by_name(
    fault: Any, world: str, more: Any, words: str
) -> None:
    with pytest.raises(ExperimentError) as caught:
        parse(content(fault, world=world, **more))
    assert words in str(caught.value)
    assert "faults" in str(caught.value)


def test_an_ended_broker_ends_again_only_after_a_restart() -> None:
    kill = {"kind": "kill", "at_s": 0.5, "broker": 0}
    restart = {"kind": "restart", "at_s": 1.0, "broker": 0}
    stop = {"kind": "stop", "at_s": 1.5, "broker": 0}
    parse(content(stop, restart, kill, **CLUSTER))
    with pytest.raises(ExperimentError, match=r"faults\[0\]: broker 0 has ended"):
        parse(content(stop, kill, **CLUSTER))


def test_a_live_disk_that_was_filled_goes_with_its_broker() -> None:
    full = {"kind": "fill", "at_s": 0.5, "until_s": 0.7, "broker": 0}
    restart = {"kind": "restart", "at_s": 1.0, "broker": 0}
    parse(content(full, {**restart, "broker": 1}, world="live", **CLUSTER))
    parse(content(full, restart, **CLUSTER))
    with pytest.raises(ExperimentError, match=r"faults\[1\]: in the live world"):
        parse(content(full, restart, world="live", **CLUSTER))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cluster": {"leader": 2}}, "there is no broker 2"),
        ({**CLUSTER, "virtual": {"server": "cpu"}}, "brokers share no CPU"),
        ({**CLUSTER, "world": "model"}, "there is no cluster in the model world"),
        ({**CLUSTER, "world": "kraft"}, "there is no cluster in the kraft world"),
        (
            {"arms": [{"name": "fifo", "scheduler": "fifo", "controller": "merged"}]},
            "a controller needs a [cluster]",
        ),
    ],
)
def test_an_invalid_cluster_is_refused(more: Any, words: str) -> None:
    with pytest.raises(ExperimentError, match=words.replace("[", r"\[")):
        parse(content(**more))


@pytest.mark.parametrize(
    ("request_of", "words"),
    [
        ({"api": "fetch"}, "not fetch"),
        ({"api": "produce", "acks": 0}, "acks = 0"),
        ({"api": "produce", "partitions": 2, "topic_partitions": 2}, "one partition"),
    ],
)
def test_unsupported_requests_of_cluster_clients_are_refused(
    request_of: Any, words: str
) -> None:
    built = content(**CLUSTER)
    built["workload"]["traffic"] = [{**TRAFFIC[0], "request": request_of}]
    with pytest.raises(ExperimentError, match=words):
        parse(built)


def test_faults_are_stretched_with_the_load() -> None:
    slower = on_machine(parse(content(SCALE, **CLUSTER)), 2.0)
    (fault,) = slower.faults
    assert isinstance(fault, ScaleLoad)
    assert (fault.at_s, fault.until_s) == (1.0, 3.0)


def test_work_and_time_are_each_others_inverse_and_scales_multiply() -> None:
    pace = Pace([Scale(100, 300, 3.0), Scale(200, 400, 2.0)])
    # By hand: 100 unscaled, 100 by three, 100 by six, 100 by two, then unscaled.
    assert [pace.work(t) for t in (100, 200, 300, 400, 500)] == [
        100,
        400,
        1000,
        1200,
        1300,
    ]
    assert [pace.instant(pace.work(t)) for t in range(600)] == list(range(600))


def test_arrivals_come_faster_while_the_load_is_scaled() -> None:
    built = parse(content({**SCALE, "traffic": "load"}))
    drawn = trace.generate(built, 0)
    at_s = drawn.table["intended_ns"].to_numpy() / 1e9
    load = np.array(drawn.column("traffic")) == "load"
    inside = (at_s >= 0.5) & (at_s < 1.5)
    # Poisson counts of means 6000 and 2000; the tolerance is four standard deviations.
    assert abs(np.count_nonzero(load & inside) - 6000) < 4 * 6000**0.5
    assert abs(np.count_nonzero(load & ~inside) - 2000) < 4 * 2000**0.5
    assert np.all(np.diff(at_s) >= 0)
    # The arrivals of the other entry are the same as without any fault.
    plain = trace.generate(parse(content()), 0)
    unscaled = np.array(plain.column("traffic")) == "meta"
    plain_s = plain.table["intended_ns"].to_numpy() / 1e9
    assert at_s[~load].tolist() == plain_s[unscaled].tolist()
