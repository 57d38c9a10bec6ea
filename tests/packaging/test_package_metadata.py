"""The package's metadata: one version, typed packages, the extra of each command."""

import re
import tomllib
from pathlib import Path

import pytest

from doorkeeper.extras import missing_extra
from tests.architecture import PACKAGES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_citation_and_package_have_one_version():
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None
    assert cited[1] == PROJECT["version"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_marked_as_typed(package):
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [
        ("experiment", "pyarrow.parquet", "lab"),
        ("experiment", "pyspark", "analysis"),
        ("analyze", "pydantic", "analysis"),
        ("paper", "pydantic", "paper"),
        ("serve", "numpy", "lab"),
        ("console", "hypercorn.config", "console"),
        ("console", "jinja2", "console"),
        ("results", "jinja2", "analysis"),
        # A user's own policy imports a missing module.
        ("serve", "my_policies", None),
        ("serve", "trio", None),
    ],
)
def test_the_extra_of_a_command_has_the_module_that_it_misses(command, module, extra):
    assert missing_extra(command, module) == extra
