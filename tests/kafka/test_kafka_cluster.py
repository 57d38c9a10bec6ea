"""A leader election between two Apache Kafka brokers, with Doorkeeper's controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.cluster.member_keys import Endpoints
from experiments.design.config import Experiment, parse
from experiments.load import trace
from experiments.processes.child import Binding
from experiments.worlds.kafka import kafka_world
from experiments.worlds.kafka.kafka_program import KafkaProgram
from experiments.worlds.kafka.request_queue import AGENT
from experiments.worlds.kafka.zookeeper_mode import VERSION
from experiments.worlds.live.broker_program import Member
from experiments.worlds.world import MachineTrial, WorldError
from tests.attempts import attempts_of, run_files
from tests.kafka.java_tools import need_kafka

PRODUCE, LEADER_AND_ISR = 0, 4
OLD, NEW = 0, 1
MS = 1_000_000
CLASS_AWARE = {"doorkeeper.reader": "class-aware", "doorkeeper.admission": "exempt"}


def incident(scheduler: str, keys: dict[str, Any]) -> Experiment:
    """Return a second of writes with a leader election in the middle."""
    return parse(
        {
            "experiment": {
                "name": "small",
                "seed": 8,
                "blocks": 1,
                "baseline": "arm",
                "again": False,
                "world": "kafka",
            },
            "cluster": {"request_timeout_ms": 5000.0, "retry_backoff_ms": 20.0},
            "workload": {
                "duration_s": 1.0,
                "traffic": [
                    {
                        "name": "all",
                        "connections": 8,
                        "arrivals": {"kind": "constant", "rate_per_s": 40.0},
                        "request": {"api": "produce", "acks": -1},
                    }
                ],
            },
            "faults": [{"kind": "elect", "at_s": 0.5}],
            "arms": [{"name": "arm", "scheduler": scheduler, "set": keys}],
            "broker": {"set": {"num.io.threads": 1, "doorkeeper.quantum.us": 500}},
            "kafka": {"set": {"compression.type": "zstd", "compression.zstd.level": 3}},
            "limits": {"lateness_p99_ms": 10_000.0, "drain_s": 30.0},
        }
    )


@pytest.mark.kafka
@pytest.mark.live
@pytest.mark.parametrize(
    ("scheduler", "keys"),
    [
        pytest.param("planes", {}, id="planes"),
        pytest.param("priority", CLASS_AWARE, id="priority", marks=pytest.mark.slow),
    ],
)
def test_an_election_moves_the_load_and_loses_nothing_that_all_have(
    tmp_path: Path, scheduler: str, keys: dict[str, Any]
) -> None:
    need_kafka(VERSION)
    if keys and not AGENT.exists():
        pytest.skip("the agent is not built: `make kafka-tools`")
    built = incident(scheduler, keys)
    drawn = trace.generate(built, 0)
    out = run_files(tmp_path)
    trial = MachineTrial(experiment=built, block=0, arm=built.arms[0])
    result = kafka_world.make(lambda: None).run(trial, drawn, out)
    assert result.valid, result.reason
    assert result.counts["ok"] == result.counts["sent"] == len(drawn)
    assert result.broker_cpu_s is not None
    assert result.broker_cpu_s > 0
    at = attempts_of(out)
    done = (at["api_key"] == PRODUCE) & (at["error_code"] == 0)
    assert set(at["broker"][done]) == {OLD, NEW}
    assert np.all(at["kept"][done] == 1)
    # The unrecorded run before has ended with the first leader.
    early = done & (at["intended_ns"] < 400 * MS)
    assert set(at["broker"][early]) == {OLD}
    # Clocks of clients and brokers agree to 1 ms; both values are rounded to 1 ms.
    assert np.all(at["received_ns"][done] > at["sent_ns"][done] - 2 * MS)
    # A request's times are counted back from its line in Kafka's log. The line follows
    # the answer, so a broker that waits for a CPU in between moves a few requests to
    # later than their clients; a false clock moves all.
    later_ns = at["local_done_ns"][done] - at["client_done_ns"][done]
    assert np.quantile(later_ns, 0.9) < 2 * MS
    assert np.all(at["broker_error_code"][done] == 0)
    # Each broker received one LEADER_AND_ISR, after the controller's decision.
    told = at["api_key"] == LEADER_AND_ISR
    assert set(at["broker"][told]) == {OLD, NEW}
    assert np.all(at["intended_ns"][told] > 500 * MS)
    assert np.all(at["local_done_ns"][told] > at["intended_ns"][told] - 2 * MS)
    # The new leader acknowledges no write before its LEADER_AND_ISR.
    obeyed_ns = at["dequeued_ns"][told & (at["broker"] == NEW)].min()
    assert at["client_done_ns"][done & (at["broker"] == NEW)].min() > obeyed_ns


def member(tmp_path: Path) -> Member:
    endpoints = Endpoints(host="127.0.0.1", data=9092, control=9093, zookeeper="zk:1")
    return Member(
        number=1,
        at=tmp_path,
        record=tmp_path / "life-0.rows",
        endpoints=endpoints,
        binding=Binding(parent=1, cpus=None, nice=0),
    )


def program(scheduler: str, **keys: Any) -> KafkaProgram:
    built = incident(scheduler, keys)
    trial = MachineTrial(experiment=built, block=0, arm=built.arms[0])
    return KafkaProgram(trial, lambda: None)


def test_a_member_has_the_keys_of_ours_without_our_own(tmp_path: Path) -> None:
    keys = program("planes").keys(member(tmp_path))
    assert not [key for key in keys if key.startswith("doorkeeper.")]
    assert keys["broker.id"] == "1"
    assert keys["zookeeper.connect"] == "zk:1"
    assert keys["listeners"] == (
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    )
    assert keys["control.plane.listener.name"] == "CONTROLLER"
    assert keys["compression.zstd.level"] == "3"
    assert keys["num.io.threads"] == "1"
    assert keys["auto.leader.rebalance.enable"] == "false"
    one = program("fifo").keys(member(tmp_path))
    assert one["listeners"] == "PLAINTEXT://127.0.0.1:9092"


def test_an_arm_that_kafka_cannot_have_is_refused() -> None:
    with pytest.raises(WorldError, match="'np-priority'"):
        program("np-priority")
