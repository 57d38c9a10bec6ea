"""Checks of all additions, run inside the copy of the tree.

``test_adding.py`` runs this file; it fails in a tree without the additions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import planes
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from doorkeeper.cli import main
from spark_analysis.recordings.columns import REQUESTS
from spark_analysis.recordings.manifest import load_manifest
from tests.adding.additions import ROOT
from tests.virtual.kafka import SETTINGS, ask, kafka
from tests.virtual.world import World, in_world

CONFIG = """
[experiment]
name = "added"
seed = 1
blocks = 1
baseline = "fifo"

[workload]
duration_s = 0.1

[[workload.traffic]]
name = "departures"
connections = 8
arrivals = { kind = "poisson", rate_per_s = 2000.0 }
request = { api = "unregister-broker" }
service = { kind = "constant", mean_us = 100.0 }

[[arms]]
name = "fifo"
scheduler = "fifo"

[[arms]]
name = "newest"
scheduler = "newest"
set = { "doorkeeper.admission" = "halved", "queued.max.requests" = 4 }
"""
BLOCKS = 8


def test_this_is_the_copy() -> None:
    assert planes.__file__ is not None
    assert Path(planes.__file__).is_relative_to(ROOT)


def test_the_api_is_reported_and_answered() -> None:
    async def scenario(world: World) -> tuple[Any, Any]:
        stream = world.connect()
        name = {"client_software_name": "a", "client_software_version": "1"}
        listed = await ask(stream, ApiKey.API_VERSIONS, 3, **name)
        return listed, await ask(stream, ApiKey.UNREGISTER_BROKER, 0, broker_id=7)

    listed, answered = in_world(scenario, SETTINGS, application=kafka)
    assert ApiKey.UNREGISTER_BROKER in {row.api_key for row in listed.api_keys}
    assert answered.error_code is ErrorCode.broker_id_not_registered


def test_the_policy_keeps_the_laws() -> None:
    said = CliRunner().invoke(main, ["schedulers", "check", "newest"])
    assert said.exit_code == 0
    assert "keeps the laws" in said.output


@pytest.mark.parametrize("world", ["model", "virtual", "instant"])
def test_an_experiment_uses_all_of_it(tmp_path: Path, world: str) -> None:
    config = tmp_path / "added.toml"
    config.write_text(CONFIG)
    directory = tmp_path / "run"
    words = ["experiment", "run", str(config), "--out", str(directory)]
    words += ["--world", world, "--executor", "sequential"]
    said = CliRunner().invoke(main, words)
    assert said.exit_code == 0, said.output
    manifest = load_manifest(directory)
    assert manifest.deterministic
    for run in manifest.runs:
        rows = pq.read_table(directory / run.requests)
        assert rows.column_names == list(REQUESTS)
        assert set(rows["outcome"].to_pylist()) == {"ok"}
        # An administrative API has the last level.
        assert set(rows["level"].to_pylist()) == {0 if world == "instant" else 5}
    keys = json.loads((directory / "manifest.json").read_text())["config"]["arms"]
    assert keys[1]["set"]["doorkeeper.admission"] == "halved"
