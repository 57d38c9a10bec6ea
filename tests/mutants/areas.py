"""Areas of code, each with its files and its tests, nearest first."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

_ROOT: Final = Path(__file__).parents[2]


class Area(NamedTuple):
    """File patterns, and the tests that should detect a change in these files.

    The ``far`` tests import much other code, and run after the near ones pass.
    """

    sources: tuple[str, ...]
    near: tuple[str, ...]
    far: tuple[str, ...] = ()
    marked: str = "not slow and not search and not live and not kafka and not spark"


def _that_import(package: str, folder: str) -> tuple[str, ...]:
    """Return the tests of a folder that import from a package."""
    found = [
        path.relative_to(_ROOT).as_posix()
        for path in sorted((_ROOT / folder).glob("test_*.py"))
        if f"from {package}" in path.read_text()
    ]
    assert found, (package, folder)
    return tuple(found)


_DEFAULTS: Final = "tests/broker/config/test_part_defaults.py"

# Doctests count as tests where `make test` runs them (testpaths in pyproject.toml).
AREAS: Final = {
    "planes": Area(
        ("planes/**/*.py",),
        (
            "planes",
            "tests/planes",
        ),
        (
            "tests/virtual/test_whole_broker.py",
            "tests/virtual/test_incident.py",
        ),
    ),
    "schedulers": Area(
        ("schedulers/**/*.py",),
        ("schedulers", "tests/schedulers"),
        ("tests/planes",),
    ),
    "log": Area(
        ("broker/log/**/*.py",),
        ("broker/log", "tests/broker/log"),
        ("tests/broker/cluster", "tests/broker/node", _DEFAULTS),
    ),
    "groups": Area(
        ("broker/groups/**/*.py",),
        ("broker/groups", "tests/broker/groups"),
        (
            _DEFAULTS,
            "tests/broker/apis/test_group_apis.py",
            "tests/broker/apis/test_offset_apis.py",
            "tests/client/test_groups_in_virtual_time.py",
        ),
    ),
    "controller": Area(
        ("broker/controller/*.py",),
        ("tests/broker/controller",),
    ),
    "network": Area(
        ("broker/network/**/*.py",),
        ("tests/broker/network",),
        (
            _DEFAULTS,
            "tests/virtual/test_whole_broker.py",
            "tests/virtual/test_contained_failures.py",
        ),
        # Includes socket tests, since half of the code serves only sockets.
        marked="not slow and not search and not kafka and not spark",
    ),
    "statistics": Area(
        ("spark_analysis/statistics/**/*.py",),
        (
            "spark_analysis/statistics",
            *_that_import("spark_analysis.statistics", "tests/spark_analysis"),
        ),
        (
            "tests/spark_analysis/test_attribution.py",
            "tests/spark_analysis/test_comparison.py",
        ),
    ),
}
# Code whose requirements a quick run lacks.
LEFT_OUT: Final = ("*/__init__.py", "*/flush_shell.py")
