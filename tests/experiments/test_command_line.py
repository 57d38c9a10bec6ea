"""The command line: listings, refusals, and lazy imports."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner, Result

from doorkeeper import broker, cli, client
from experiments.design.config_file import load
from experiments.running.experiment_command import cautions
from schedulers import POLICIES
from tests.architecture import PACKAGES

CONFIGS = Path(__file__).parents[2] / "experiments" / "configs"
QUICKSTART = CONFIGS / "quickstart.toml"


def doorkeeper(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.main, [str(each) for each in arguments])


def test_schedulers_lists_the_presets_first_and_each_policy_once() -> None:
    lines = doorkeeper("schedulers").output.splitlines()
    names = [line.split()[0] for line in lines]
    assert names[:5] == ["fifo", "planes", "planes-lending", "priority", "wfq"]
    assert sorted(names) == sorted({*POLICIES, "planes", "planes-lending"})
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_config_is_well_formed_and_has_sessions_enough(
    config: Path,
) -> None:
    found = doorkeeper("experiment", "validate", config)
    assert found.exit_code == 0, found.output
    assert list(cautions(load(config))) == []


def test_plan_counts_cells_and_minutes() -> None:
    found = doorkeeper("experiment", "plan", CONFIGS / "bursts.toml")
    assert "12 blocks x 8 arms = 96 runs in the model world, about " in found.output
    assert found.output.count("block ") == 12


def test_plan_of_sessions_states_the_configured_metric() -> None:
    found = doorkeeper("experiment", "plan", QUICKSTART)
    said = " ".join(found.output.split())
    assert (
        "12 sessions x 5 rounds x 8 arms = 480 runs in the live world, about " in said
    )
    assert "configured metric: p95 of control" in said


def test_plan_says_that_sessions_are_too_few_for_a_verdict(tmp_path: Path) -> None:
    few = tmp_path / "few.toml"
    few.write_text(QUICKSTART.read_text().replace("count = 12", "count = 7"))
    found = doorkeeper("experiment", "plan", few)
    said = " ".join(found.output.split())
    # With six arms, 6 * 2 ** (1 - n) is below 0.05 from n = 8 on.
    assert "7 sessions cannot show a significant difference of 6 arms; 8 can" in said


def test_plan_of_chosen_schedulers_has_only_their_arms() -> None:
    found = doorkeeper("experiment", "plan", QUICKSTART, "--schedulers", "fifo,wfq")
    assert "12 sessions x 5 rounds x 3 arms = 180 runs" in found.output
    assert "priority" not in found.output


def test_plan_of_a_sweep_counts_its_points() -> None:
    found = doorkeeper("experiment", "plan", CONFIGS / "ablation.toml")
    assert "connections: below, above" in found.output
    size = "2 points x 12 blocks x 11 arms = 264 runs in the model world"
    assert f"{size}, about " in found.output
    checked = doorkeeper("experiment", "validate", CONFIGS / "ablation.toml")
    assert f"ablation is well formed: {size}" in checked.output


def test_plan_of_a_bisection_counts_the_levels_that_it_may_add() -> None:
    """Three steps for each of four arms, plus the eight levels of the config."""
    found = doorkeeper("experiment", "plan", CONFIGS / "load-curves.toml")
    said = " ".join(found.output.split())
    size = "8 to 20 points x 12 blocks x 4 arms = 384 to 960 runs"
    assert f"{size} in the virtual world, about " in said
    assert re.search(r"about [\d.]+ to [\d.]+ minutes$", said)


def test_a_broker_key_of_a_level_is_checked_and_its_point_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    text = (CONFIGS / "frontier.toml").read_text()
    broken.write_text(text.replace("doorkeeper.quantum.us", "doorkeeper.quantum.ms"))
    found = doorkeeper("experiment", "validate", broken)
    assert found.exit_code == 2
    point = "load=0.5 share=0.05 service=exponential granularity=100us"
    assert f"sweep, point '{point}': arms['fifo']: " in found.output
    assert "doorkeeper.quantum.ms" in found.output


def test_an_unknown_key_ends_with_status_2_and_its_path(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    text = (CONFIGS / "bursts.toml").read_text()
    broken.write_text(text.replace("blocks = 12", "bloks = 12"))
    for command in ("validate", "plan", "run"):
        found = doorkeeper("experiment", command, broken)
        assert found.exit_code == 2
        assert "experiment.bloks: unknown key; did you mean 'blocks'?" in found.output


def test_an_unknown_broker_key_ends_with_status_2_and_its_arm(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    text = QUICKSTART.read_text()
    broken.write_text(text.replace("queued.max.requests", "queued.max.request"))
    found = doorkeeper("experiment", "validate", broken)
    assert found.exit_code == 2
    assert "queued.max.request" in found.output
    assert "arms['fifo']" in found.output


@pytest.mark.parametrize("setting", ["num.io.threads", "=4"])
def test_a_setting_that_is_no_pair_is_refused(setting: str) -> None:
    found = doorkeeper("serve", "--set", setting)
    assert found.exit_code == 2
    assert f"{setting!r} is not KEY=VALUE" in found.output


def test_serve_names_the_key_that_stops_it() -> None:
    found = doorkeeper("serve", "--set", "num.io.threads=zero")
    assert found.exit_code == 2
    assert "num.io.threads" in found.output


def test_an_unknown_scheduler_is_refused_with_all_that_there_are(
    tmp_path: Path,
) -> None:
    home = tmp_path / "data"
    found = doorkeeper("serve", "--scheduler", "nope", "--set", f"log.dirs={home}")
    assert found.exit_code == 2
    assert not home.exists()
    said = " ".join(found.output.split())
    assert "found 'nope', expected one of planes, planes-lending, fifo, " in said
    assert all(f" {name}," in said for name in POLICIES)
    assert "none of" not in said


def test_a_factory_that_cannot_be_imported_is_refused_with_the_reason() -> None:
    found = doorkeeper("serve", "--scheduler", "no.such:Policy")
    assert found.exit_code == 2
    said = " ".join(found.output.split())
    assert "expected a factory that can be imported; 'no.such:Policy' cannot" in said
    assert "No module named 'no'" in said


def modules_after(code: str) -> set[str]:
    """Return the non-standard packages that a new process imports for ``code``."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    names = done.stdout.splitlines()[-1].split()
    return {
        name
        for name in names
        if name not in sys.stdlib_module_names and not name.startswith("_")
    }


def test_help_imports_click_and_nothing_else() -> None:
    # Exclude the packages of an empty process: the hooks of an editable install.
    found = modules_after(
        "from doorkeeper.cli import main\n"
        "for words in ([], ['serve'], ['experiment', 'run'], ['paper']):\n"
        "    main([*words, '--help'], standalone_mode=False)"
    )
    assert found - modules_after("") == {"click", "doorkeeper"}


def test_serve_imports_no_experiment_and_no_heavy_library() -> None:
    # The command fails at its last validated key, after all of its imports.
    found = modules_after(
        "import click\n"
        "from doorkeeper.cli import main\n"
        "try: main(['serve', '--scheduler', 'nope'], standalone_mode=False)\n"
        "except click.UsageError: pass\n"
        "else: raise SystemExit('was not refused')"
    )
    ours = {"schedulers", "planes", "broker", "doorkeeper"}
    assert found & set(PACKAGES) == ours
    heavy = {"pyspark", "pandas", "pyarrow", "numpy", "scipy", "matplotlib", "pydantic"}
    assert not found & {*heavy, "rich"}


def test_a_program_imports_the_client_without_the_broker() -> None:
    code = "from doorkeeper.client import open_producer, open_consumer"
    found = modules_after(
        f"{code}\nimport sys; assert 'broker.server' not in sys.modules"
    )
    assert found & set(PACKAGES) == {"broker", "doorkeeper"}


@pytest.mark.parametrize("module", [client, broker])
def test_the_names_for_programs_are_all_there_and_documented(
    module: ModuleType,
) -> None:
    for name in module.__all__:
        assert inspect.getdoc(getattr(module, name)), name
