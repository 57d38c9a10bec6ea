"""Idle brokers of a session sample rarely, to leave the CPU to the active one."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from experiments.design.config import parse
from experiments.processes.pinning import Pinning
from experiments.worlds.live import live_brokers
from experiments.worlds.live import live_hosts as hosts
from tests.experiments.test_capacity import CONTENT

SAMPLES = "doorkeeper.record.samples.ms"


def properties(stated: dict[str, str], at: Path) -> list[str]:
    """Return the settings file of a session's broker as lines."""
    made = {**copy.deepcopy(CONTENT), "live": {"set": stated}}
    built = parse(made)
    with live_brokers.start(
        built, built.arms[0], at, Pinning.here(), lambda: None, hosts.RARE_SAMPLES
    ):
        pass
    return (at / "server.properties").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("stated", "expected"),
    [({}, hosts.RARE_SAMPLES[SAMPLES]), ({SAMPLES: "50"}, "50")],
)
def test_queues_are_sampled_rarely_unless_an_experiment_says_how_often(
    stated: dict[str, str], expected: str, tmp_path: Path
) -> None:
    lines = properties(stated, tmp_path)
    assert [line for line in lines if line.startswith(SAMPLES)] == [
        f"{SAMPLES}={expected}"
    ]
    # An episode is much shorter than this sampling period.
    assert int(hosts.RARE_SAMPLES[SAMPLES]) > 60_000
