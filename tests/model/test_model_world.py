"""The model world under the runner: recordings, determinism, parts of KIP-291."""

from dataclasses import fields
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments.design.config import parse
from experiments.load import trace
from experiments.records.recording import REQUESTS_SCHEMA, SAMPLES_SCHEMA
from experiments.worlds.model.model_world import Model
from experiments.worlds.model.task import ModelTask
from experiments.worlds.world import MachineTrial, RunFiles
from planes import Task

CONTENT = {
    "experiment": {
        "name": "small",
        "seed": 7,
        "blocks": 1,
        "baseline": "fifo",
        "world": "model",
    },
    "workload": {
        "duration_s": 2.0,
        "traffic": [
            {
                "name": "control",
                "connections": 8,
                "arrivals": {"kind": "poisson", "rate_per_s": 60.0},
                "request": {"api": "leader-and-isr"},
                "service": {"kind": "exponential", "mean_us": 1000.0},
            },
            {
                "name": "produce",
                "connections": 120,
                "clients": 3,
                "arrivals": {
                    "kind": "bursts",
                    "rate_per_s": 3000.0,
                    "idle_rate_per_s": 300.0,
                    "every_s": 1.0,
                    "on_s": 0.3,
                },
                "request": {"api": "produce"},
                "service": {"kind": "lognormal", "mean_us": 700.0, "cv": 2.0},
            },
        ],
    },
    "broker": {"set": {"queued.max.requests": 50, "num.io.threads": 8}},
    "arms": [{"name": "fifo", "scheduler": "fifo"}],
}


def run(tmp_path, arm, *, model=None, keys=None):
    """Run one arm; return its rows and samples as pandas frames."""
    content = {**CONTENT, "model": model or {}}
    content["arms"] = [{"name": "fifo", "scheduler": "fifo"}, {"name": "it", **arm}]
    content["broker"] = {"set": {**CONTENT["broker"]["set"], **(keys or {})}}
    experiment = parse(content)
    trial = MachineTrial(experiment=experiment, block=0, arm=experiment.arm("it"))
    drawn = trace.generate(experiment, 0)
    files = RunFiles(requests=tmp_path / "requests", samples=tmp_path / "samples")
    result = Model(lambda: None).run(trial, drawn, files)
    assert result.valid
    assert result.trace_sha256 == drawn.sha256
    assert result.counts["sent"] == len(drawn) == sum(result.counts.values()) / 2
    rows, samples = pq.read_table(files.requests), pq.read_table(files.samples)
    assert rows.schema.remove_metadata() == REQUESTS_SCHEMA.remove_metadata()
    assert samples.schema.remove_metadata() == SAMPLES_SCHEMA.remove_metadata()
    return rows.to_pandas(), samples.to_pandas()


def p99_ms(rows, request_class):
    those = rows[rows["class"] == request_class]
    latency = (those.client_done_ns - those.intended_ns) / 1e6
    return float(np.percentile(latency, 99))


EXEMPT = {"doorkeeper.reader": "class-aware", "doorkeeper.admission": "exempt"}


@pytest.mark.parametrize("scheduler", ["fifo", "planes", "priority", "wfq", "mclock"])
@pytest.mark.parametrize("server", ["cpu", "seats", "threads"])
def test_stamps_are_in_order_and_phases_sum_to_the_total(tmp_path, scheduler, server):
    rows, samples = run(tmp_path, {"scheduler": scheduler}, model={"server": server})
    assert (rows.outcome == "ok").all()
    stamps = [
        "intended_ns",
        "received_ns",
        "enqueued_ns",
        "dequeued_ns",
        "local_done_ns",
        "remote_done_ns",
        "response_dequeued_ns",
        "response_sent_ns",
        "client_done_ns",
    ]
    for earlier, later in pairwise(stamps):
        assert (rows[earlier] <= rows[later]).all(), (earlier, later)
    local = rows.local_done_ns - rows.dequeued_ns - rows.suspended_ns
    assert (local == rows.service_ns).all()
    assert (samples.handler_idle.between(0, 1)).all()
    assert set(samples.plane) == (
        {"data", "control"} if scheduler == "planes" else {"data"}
    )


def test_two_runs_are_the_same_to_the_byte(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    arm = {"scheduler": "wfq", "set": EXEMPT}
    model = {"estimate_sigma": 1.0, "misclassified": 0.1}
    first, _ = run(tmp_path / "a", arm, model=model)
    second, _ = run(tmp_path / "b", arm, model=model)
    assert first.equals(second)


def test_the_cpu_is_one_server_and_seats_are_eight(tmp_path):
    cpu, _ = run(tmp_path, {"scheduler": "fifo"})
    seats, _ = run(tmp_path, {"scheduler": "fifo"}, model={"server": "seats"})
    assert p99_ms(cpu, "produce") > 5 * p99_ms(seats, "produce")
    busy_ns = int(cpu.service_ns.sum())
    span_ns = int(cpu.remote_done_ns.max() - cpu.dequeued_ns.min())
    assert busy_ns <= span_ns


def test_blind_readers_cost_control_what_class_aware_ones_do_not(tmp_path):
    blind, _ = run(tmp_path, {"scheduler": "priority"})
    aware, _ = run(tmp_path, {"scheduler": "priority", "set": EXEMPT})
    fifo, _ = run(tmp_path, {"scheduler": "fifo"})
    assert p99_ms(aware, "control") < 20
    assert p99_ms(blind, "control") > 5 * p99_ms(aware, "control")
    assert p99_ms(fifo, "control") > p99_ms(blind, "control")


def test_the_parts_of_kip_291_together_are_its_planes(tmp_path):
    """One data worker fewer, since the preset planes add a control worker."""
    keys = {"num.io.threads": 8}
    own = {"own": ["reader", "queue", "worker"]}
    model = {"server": "seats"}
    arm = {"scheduler": "fifo", "model": own}
    parts, _ = run(tmp_path, arm, model=model, keys=keys)
    keys = {"num.io.threads": 7}
    planes, _ = run(tmp_path, {"scheduler": "planes"}, model=model, keys=keys)
    columns = ["received_ns", "dequeued_ns", "response_sent_ns"]
    assert parts[columns].equals(planes[columns])


@pytest.mark.parametrize(
    "own", [["reader"], ["queue"], ["worker"], ["queue", "worker"]]
)
def test_each_part_of_kip_291_runs_alone(tmp_path, own):
    model, keys = {"server": "seats"}, {"num.io.threads": 2}
    arm = {"scheduler": "fifo", "model": {"own": own}}
    rows, _ = run(tmp_path, arm, model=model, keys=keys)
    baseline, _ = run(tmp_path, {"scheduler": "fifo"}, model=model, keys=keys)
    assert (rows.outcome == "ok").all()
    assert not rows.response_sent_ns.equals(baseline.response_sent_ns)


def test_an_arm_has_its_own_distortions(tmp_path):
    straight, _ = run(tmp_path, {"scheduler": "priority", "set": EXEMPT})
    wrong, _ = run(
        tmp_path,
        {"scheduler": "priority", "set": EXEMPT, "model": {"misclassified": 0.3}},
    )
    assert p99_ms(wrong, "control") > 2 * p99_ms(straight, "control")


def test_overheads_lengthen_a_run(tmp_path):
    arm = {"scheduler": "priority", "set": EXEMPT}
    free, _ = run(tmp_path, arm)
    dear, _ = run(tmp_path, {**arm, "model": {"switch_us": 200.0}})
    assert dear.response_sent_ns.max() > free.response_sent_ns.max()
    assert dear.service_ns.equals(free.service_ns)


def test_a_task_of_the_model_begins_as_any_task_does():
    """`ModelTask` has a hand-written initialiser, so every field is compared."""
    ours, theirs = ModelTask(3, 5, 7), Task(number=3, received_ns=5, arrived_ns=5)
    for field in fields(Task):
        if field.name in {
            "serve",
            "done",
            "subject",
            "coroutine",
            "go_on",
            "service_ns",
        }:
            # Fields that a model task never has must not look like unset ones.
            assert not hasattr(ours, field.name)
        elif not field.init:
            # A plane sets these fields when it admits a task; no initialiser does.
            assert not hasattr(ours, field.name)
            assert not hasattr(theirs, field.name)
        else:
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name
