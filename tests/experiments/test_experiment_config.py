"""Validation of an experiment's config, and its messages."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest

from experiments.design import config, config_file
from experiments.design.config import ExperimentError, parse

CONTENT: dict[str, Any] = {
    "experiment": {"name": "small", "seed": 1, "blocks": 2, "baseline": "fifo"},
    "workload": {
        "duration_s": 3,
        "traffic": [
            {
                "name": "control",
                "connections": 4,
                "arrivals": {"kind": "poisson", "rate_per_s": 100},
                "request": {"api": "leader-and-isr"},
            },
            {
                "name": "load",
                "connections": 8,
                "arrivals": {"kind": "constant", "rate_per_s": 10},
                "request": {"api": "produce", "acks": 1},
            },
        ],
    },
    "arms": [
        {"name": "fifo", "scheduler": "fifo"},
        {"name": "rival", "scheduler": "wfq", "set": {"num.io.threads": 4}},
    ],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the content with one key set; ``path`` as in ``arms.0.name``."""
    content = copy.deepcopy(CONTENT)
    table: Any = content
    *parents, last = path.split(".")
    for part in parents:
        table = (
            table[int(part)] if isinstance(table, list) else table.setdefault(part, {})
        )
    table[last] = value
    return content


def refusal(content: dict[str, Any]) -> str:
    with pytest.raises(ExperimentError) as caught:
        parse(content)
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("workloads", {}, "workloads: unknown key; did you mean 'workload'?"),
        ("experiment.sed", 4, "experiment.sed: unknown key; did you mean 'seed'?"),
        ("limits.drain", 3, "limits.drain: unknown key; did you mean 'drain_s'?"),
        ("analysis.resamples", 500, "analysis.resamples: unknown key; known here: qu"),
        (
            "workload.traffic.0.arrivals.rate",
            3,
            "workload.traffic[0].arrivals.rate: unknown key; "
            "known here: rate_per_s, load, kind",
        ),
        (
            "workload.traffic.0.request.acks",
            1,
            "workload.traffic[0].request.acks: unknown key; known here: api, parti",
        ),
        (
            "workload.traffic.1.request.acks",
            3,
            "workload.traffic[1].request.acks: found 3, expected 0, 1 or -1",
        ),
        (
            "workload.traffic.1.request.api",
            "profuce",
            "workload.traffic[1].request: 'api' = 'profuce' is none of 'produce', ",
        ),
        (
            "workload.traffic.1.connections",
            "8",
            "workload.traffic[1].connections: found '8', expected a valid integer",
        ),
        ("arms.1.set", {"k": [1]}, "arms[1].set.k: found [1], expected a valid string"),
        ("experiment.blocks", 0, "experiment.blocks: found 0, expected greater than"),
        (
            "experiment.world",
            "mars",
            "experiment.world: found 'mars', expected one of 'live', ",
        ),
        (
            "experiment.baseline",
            "lifo",
            "the file: baseline 'lifo' is none of the arms fifo, rival",
        ),
        ("arms.1.name", "fifo", "the file: two arms are called 'fifo'"),
        ("arms.1.name", "x-again", "the file: arm 'x-again': '-again' is kept for"),
        (
            "workload.traffic.0.name",
            "load",
            "workload: two traffic entries are called 'load'",
        ),
        ("workload.warmup_s", 3.0, "workload: warmup_s = 3.0 leaves nothing"),
        (
            "workload.traffic.0.stop_s",
            9.0,
            "workload: 'control' starts or stops after the run's end",
        ),
        ("workload.traffic.0.clients", 5, "workload.traffic[0]: clients = 5 exceeds"),
        (
            "workload.traffic.0.arrivals",
            {"kind": "bursts", "rate_per_s": 1.0, "every_s": 1.0, "on_s": 2.0},
            "workload.traffic[0].arrivals: on_s = 2.0 is longer than every_s",
        ),
        ("analysis.slo_share", 1.0, "analysis.slo_share: found 1.0, expected less"),
        (
            "analysis.fairness_window_ms",
            0,
            "analysis.fairness_window_ms: found 0, expected greater than or equal",
        ),
        (
            "analysis.recovery_s",
            [[0.5]],
            "analysis.recovery_s[0][1]: this key is missing",
        ),
    ],
)
def test_a_mistake_is_named_with_its_path(path: str, value: Any, message: str) -> None:
    assert refusal(changed(path, value)).startswith(message)


@pytest.mark.parametrize(
    ("intervals", "found"),
    [
        ([[0.0, 0.5]], "0.0 to 0.5"),
        ([[0.6, 0.5]], "0.6 to 0.5"),
        ([[0.5, 9.0]], "0.5 to 9.0"),
        ([[0.5, 0.8], [0.7, 0.9]], "0.7 to 0.9"),
    ],
)
def test_intervals_of_recovery_ascend_in_the_window(
    intervals: list[list[float]], found: str
) -> None:
    content = changed("analysis", {"recovery_s": intervals})
    content["workload"]["warmup_s"] = 0.1
    content["workload"]["traffic"][0]["slo_ms"] = 5.0
    message = refusal(content)
    assert message.startswith(f"the file: analysis.recovery_s: {found}, expected")


def test_recovery_needs_an_objective() -> None:
    content = changed("analysis", {"recovery_s": [[0.2, 0.5]]})
    for entry in content["workload"]["traffic"]:
        entry.pop("slo_ms", None)
    assert "analysis.recovery_s: no traffic has a slo_ms" in refusal(content)


def test_a_missing_key_is_named() -> None:
    content = copy.deepcopy(CONTENT)
    del content["experiment"]["seed"]
    assert refusal(content) == "experiment.seed: this key is missing"


def test_a_mistyped_key_is_named_rather_than_the_one_it_leaves_missing() -> None:
    content = copy.deepcopy(CONTENT)
    content["experiment"]["sede"] = content["experiment"].pop("seed")
    assert refusal(content).startswith("experiment.sede: unknown key; did you mean 'se")


def test_malformed_toml_is_refused_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("[experiment\n")
    with pytest.raises(ExperimentError, match=r"broken\.toml: no TOML: .*line 1"):
        config_file.load(file)


def test_the_baseline_runs_again_as_the_last_arm() -> None:
    experiment = parse(CONTENT)
    assert [arm.name for arm in experiment.all_arms()] == [
        "fifo",
        "rival",
        "fifo-again",
    ]
    again = experiment.all_arms()[-1]
    assert experiment.again_of(again) == "fifo"
    fifo = experiment.arm("fifo")
    assert experiment.broker_keys(again) == experiment.broker_keys(fifo)


def test_an_arms_keys_win_over_the_shared_ones_and_become_properties() -> None:
    content = changed("broker.set", {"num.io.threads": 8, "log.flush": True, "a": 1.5})
    experiment = parse(content)
    assert experiment.broker_keys(experiment.arm("rival")) == {
        "num.io.threads": "4",
        "log.flush": "true",
        "a": "1.5",
        "doorkeeper.scheduler": "wfq",
    }


def test_defaults_filled_in_read_back_as_the_same_experiment() -> None:
    experiment = parse(CONTENT)
    assert parse(experiment.content()) == experiment
    assert parse(experiment.content()).sha256() == experiment.sha256()


def test_the_hash_changes_with_any_key() -> None:
    other = parse(changed("workload.traffic.0.connections", 5))
    assert other.sha256() != parse(CONTENT).sha256()


def test_schedulers_named_on_the_command_line_replace_the_arms() -> None:
    experiment = parse(CONTENT).with_schedulers(["fifo", "mine.policies:Lifo"])
    assert [(arm.name, arm.scheduler) for arm in experiment.arms] == [
        ("fifo", "fifo"),
        ("mine.policies.lifo", "mine.policies:Lifo"),
    ]


def test_schedulers_without_the_baseline_are_refused() -> None:
    with pytest.raises(ExperimentError, match="baseline 'fifo' is none of the arms"):
        parse(CONTENT).with_schedulers(["rival"])


def test_pairs_to_compare_are_arms_and_go_with_them() -> None:
    content = changed("analysis", {"compare": [["rival", "fifo"]]})
    experiment = parse(content)
    assert experiment.analysis.compare == (("rival", "fifo"),)
    assert experiment.with_schedulers(["fifo", "wfq"]).analysis.compare == ()
    with pytest.raises(ExperimentError, match=r"analysis\.compare: no arm is 'lifo'"):
        parse(changed("analysis", {"compare": [["rival", "lifo"]]}))


def test_keys_are_checked_against_the_broker() -> None:
    experiment = parse(changed("arms.1.set", {"num.io.treads": 4}))
    with pytest.raises(ExperimentError, match=r"^arms\['rival'\]: .*num\.io\.treads"):
        config.check_broker_keys(experiment)
    config.check_broker_keys(parse(CONTENT))


def test_an_experiment_travels_to_another_process_as_it_is() -> None:
    built = parse(CONTENT)
    assert pickle.loads(pickle.dumps(built)) == built
