"""Experiments whose broker is Apache Kafka: recorded data and refused configs."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from doorkeeper import cli
from experiments.design.config import parse
from experiments.running import runner
from experiments.running.executors.sequential import Sequential
from experiments.running.world_registry import make_world
from experiments.worlds.kafka.kafka_phases import PHASES
from experiments.worlds.kafka.kraft import KRaftMode
from experiments.worlds.kafka.nodes import Mode
from experiments.worlds.kafka.request_queue import AGENT, UNCHANGED, queue_of
from experiments.worlds.kafka.settings import settings_of
from experiments.worlds.kafka.zookeeper_mode import ZooKeeperMode
from experiments.worlds.world import WorldError
from tests.experiments.unwatched import Unwatched
from tests.kafka.java_tools import need_kafka

CONFIG = """
[experiment]
name = "small"
seed = 5
blocks = 1
baseline = "fifo"
again = false
world = "kafka"

[workload]
duration_s = 0.5

[[workload.traffic]]
name = "control"
connections = 4
arrivals = { kind = "poisson", rate_per_s = 100.0 }
request = { api = "leader-and-isr", partitions = 2 }

[[workload.traffic]]
name = "cache"
connections = 2
arrivals = { kind = "constant", rate_per_s = 20.0 }
request = { api = "update-metadata" }

[[workload.traffic]]
name = "load"
connections = 8
arrivals = { kind = "poisson", rate_per_s = 100.0 }
request = { api = "produce", partitions = 5, topic_partitions = 10 }

[[workload.traffic]]
name = "read"
connections = 2
arrivals = { kind = "poisson", rate_per_s = 50.0 }
request = { api = "fetch", partition_max_bytes = 4096 }

[[arms]]
name = "fifo"
scheduler = "fifo"

[[arms]]
name = "planes"
scheduler = "planes"

[broker]
set = { "queued.max.requests" = 20 }

[limits]
lateness_p99_ms = 10000.0
"""


def ran(tmp_path: Path, mode: Mode, world: str, arm: str) -> tuple[Path, Any]:
    """Run the experiment with one arm; return its directory and its only run."""
    need_kafka(mode.version)
    file = tmp_path / "small.toml"
    file.write_text(CONFIG.replace('baseline = "fifo"', f'baseline = "{arm}"'))
    out = tmp_path / "run"
    command = ["experiment", "run", str(file), "--out", str(out), "--world", world]
    done = CliRunner().invoke(cli.main, [*command, f"--schedulers={arm}"])
    assert done.exit_code == 0, done.output
    (run,) = json.loads((out / "manifest.json").read_text())["runs"]
    assert run["valid"], run["reason"]
    return out, run


@pytest.mark.kafka
@pytest.mark.live
@pytest.mark.parametrize("arm", ["fifo", "planes"])
def test_kafka_serves_a_trace_as_our_broker_does(tmp_path: Path, arm: str) -> None:
    """Kafka accepts controller requests on both listeners; JMX reports the phases."""
    out, run = ran(tmp_path, ZooKeeperMode(), "kafka", arm)
    assert run["counts"]["ok"] == run["counts"]["sent"] > 50
    rows = pq.read_table(out / run["requests"])
    assert rows.num_rows == run["counts"]["sent"]
    latency_ns = rows["client_done_ns"].to_numpy() - rows["intended_ns"].to_numpy()
    assert np.all(latency_ns > 0)
    assert rows["received_ns"].null_count == rows.num_rows
    assert run["loop_us"] > 0
    of_control = run["broker_phases_ms"]["LeaderAndIsr"]
    assert set(of_control) == set(PHASES)
    assert of_control["TotalTimeMs"] > 0


@pytest.mark.kafka
@pytest.mark.live
def test_kafka_without_zookeeper_serves_the_data_classes(tmp_path: Path) -> None:
    """KRaft does not know controller requests, and closes their connections."""
    out, run = ran(tmp_path, KRaftMode(), "kraft", "fifo")
    rows = pq.read_table(out / run["requests"]).to_pandas()
    of_class = rows.groupby("class", observed=True)["outcome"].unique()
    assert set(of_class["control"]) == {"error"}
    assert set(of_class["produce"]) == set(of_class["fetch"]) == {"ok"}
    assert run["broker_cpu_s"] > 0
    assert run["broker_phases_ms"]["Produce"]["TotalTimeMs"] > 0
    assert "LeaderAndIsr" not in run["broker_phases_ms"]


@pytest.mark.kafka
@pytest.mark.live
@pytest.mark.parametrize(
    ("mode", "world", "arms"),
    [
        (ZooKeeperMode(), "kafka", ("fifo", "planes")),
        (KRaftMode(), "kraft", ("fifo",)),
    ],
    ids=["kafka", "kraft"],
)
def test_nodes_stay_alive_for_a_session(
    tmp_path: Path, mode: Mode, world: str, arms: tuple[str, ...]
) -> None:
    """All rounds are served alike, also after a round that lost connections."""
    need_kafka(mode.version)
    content = tomllib.loads(CONFIG)
    del content["experiment"]["blocks"]
    content["experiment"]["world"] = world
    content["arms"] = content["arms"][: len(arms)]
    content["sessions"] = {"count": 1, "rounds": 2, "primary": "produce"}
    content.setdefault("limits", {})["lateness_p99_ms"] = 1e6
    made = make_world(world, lambda: None)
    runner.run(
        parse(content),
        tmp_path,
        made,
        Sequential(made),
        Unwatched(),
        resume=False,
    )
    runs = json.loads((tmp_path / "manifest.json").read_text())["runs"]
    assert [run["reason"] for run in runs] == [""] * 2 * len(arms)
    for arm in arms:
        first, last = (run for run in runs if run["arm"] == arm)
        rows = pq.read_table(tmp_path / first["requests"]).to_pandas()
        unserved = {"control"} if world == "kraft" else set()
        for _, row in rows.iterrows():
            assert row["outcome"] == ("error" if row["class"] in unserved else "ok")
        assert set(rows["run_id"]) == {first["run_id"], last["run_id"]}
        assert first["broker_cpu_s"] > 0
        assert not first["broker_phases_ms"]
        assert last["broker_phases_ms"]["Produce"]["TotalTimeMs"] > 0


CLASS_AWARE = {
    "doorkeeper.reader": "class-aware",
    "doorkeeper.admission": "exempt",
}


def with_arm(scheduler: str, **changes: Any) -> Any:
    """Return the config of an experiment with one arm."""
    content = tomllib.loads(CONFIG)
    content["arms"] = [{"name": "fifo", "scheduler": scheduler, **changes}]
    return content


@pytest.mark.kafka
@pytest.mark.live
@pytest.mark.parametrize(
    ("mode", "world", "scheduler", "reader"),
    [
        pytest.param(ZooKeeperMode(), "kafka", "priority", CLASS_AWARE, id="priority"),
        pytest.param(
            *(ZooKeeperMode(), "kafka", "wfq", {}), id="wfq", marks=pytest.mark.slow
        ),
        pytest.param(
            *(KRaftMode(), "kraft", "wfq", CLASS_AWARE),
            id="kraft",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_kafka_serves_a_trace_with_another_queue(
    tmp_path: Path, mode: Mode, world: str, scheduler: str, reader: dict[str, str]
) -> None:
    """Each request has one response, and the queue length remains a metric."""
    need_kafka(mode.version)
    if not AGENT.exists():
        pytest.skip("the agent is not built: `make kafka-tools`")
    content = with_arm(scheduler, set=reader)
    content["experiment"]["world"] = world
    made = make_world(world, lambda: None)
    experiment = parse(content)
    runner.run(experiment, tmp_path, made, Sequential(made), Unwatched(), resume=False)
    (run,) = json.loads((tmp_path / "manifest.json").read_text())["runs"]
    assert run["valid"], run["reason"]
    rows = pq.read_table(tmp_path / run["requests"]).to_pandas()
    unserved = {"control"} if world == "kraft" else set()
    for _, row in rows.iterrows():
        assert row["outcome"] == ("error" if row["class"] in unserved else "ok")
    assert run["broker_phases_ms"]["Produce"]["RequestQueueTimeMs"] >= 0


def test_the_queue_has_the_keys_of_the_arm() -> None:
    content = with_arm(
        "wfq", set={**CLASS_AWARE, "doorkeeper.wfq.weights": "control:8,fetch:2"}
    )
    experiment = parse(content)
    queue = queue_of(experiment, experiment.arms[0])
    assert queue is not None
    found = queue.properties
    assert (found["order"], found["reader"]) == ("wfq", "class-aware")
    assert found["favoured"] == "control"
    assert (found["class.0"], found["class.4"]) == ("produce", "control")
    assert found["level.control"] == "0"
    assert (found["weight.control"], found["weight.fetch"]) == ("8", "2")


def test_kafkas_own_arms_run_without_the_agent() -> None:
    experiment = parse(tomllib.loads(CONFIG))
    for arm in experiment.arms:
        assert queue_of(experiment, arm) is None


def test_the_agent_can_be_loaded_and_change_nothing() -> None:
    content = with_arm("fifo")
    content["arms"][0]["kafka"] = {"queue": "unchanged"}
    experiment = parse(content)
    assert queue_of(experiment, experiment.arm("fifo")) is UNCHANGED


@pytest.mark.parametrize(
    ("arm", "named"),
    [
        ({"scheduler": "planes", "set": CLASS_AWARE}, "not 'planes'"),
        ({"scheduler": "fifo", "set": {"doorkeeper.admission": "codel"}}, "codel"),
    ],
)
def test_a_queue_that_the_agent_has_not_is_refused(
    arm: dict[str, Any], named: str
) -> None:
    content = tomllib.loads(CONFIG)
    content["arms"] = [{"name": "fifo", "scheduler": "fifo"}, {"name": "other", **arm}]
    experiment = parse(content)
    with pytest.raises(WorldError, match=named):
        queue_of(experiment, experiment.arms[1])


def test_kafkas_own_order_can_be_the_agents() -> None:
    content = with_arm("fifo", kafka={"queue": "replaced"})
    experiment = parse(content)
    queue = queue_of(experiment, experiment.arm("fifo"))
    assert queue is not None
    found = queue.properties
    assert (found["order"], found["reader"], found["admission"]) == (
        *("fifo", "blind", "block"),
    )


@pytest.mark.parametrize(
    ("arm", "named"),
    [
        ({"scheduler": "edf"}, "'edf'"),
        (
            {"scheduler": "fifo", "set": {"doorkeeper.lock.inheritance": False}},
            "doorkeeper.lock.inheritance",
        ),
    ],
)
def test_an_arm_that_kafka_cannot_have_is_refused(
    arm: dict[str, Any], named: str
) -> None:
    content = tomllib.loads(CONFIG)
    content["arms"] = [{"name": "fifo", "scheduler": "fifo"}, {"name": "other", **arm}]
    experiment = parse(content)
    with pytest.raises(WorldError, match=named):
        settings_of(experiment, experiment.arms[1], ZooKeeperMode())


def test_kafka_4_has_one_plane() -> None:
    experiment = parse(tomllib.loads(CONFIG))
    with pytest.raises(WorldError, match=r"4\.4\.0 has fifo, priority, wfq, and"):
        settings_of(experiment, experiment.arm("planes"), KRaftMode())


def test_an_arm_that_kafka_can_have_keeps_kafkas_own_keys() -> None:
    """Keys for all Doorkeeper brokers of the experiment do not apply to Kafka."""
    content = tomllib.loads(CONFIG)
    content["broker"]["set"]["doorkeeper.quantum.us"] = 500
    experiment = parse(content)
    found = settings_of(experiment, experiment.arms[1], ZooKeeperMode())
    assert found == {"queued.max.requests": "20"}
