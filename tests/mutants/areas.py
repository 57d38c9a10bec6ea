"""Which tests stand for which code: an area's files, and its tests, nearest first."""

from __future__ import annotations

from typing import Final, NamedTuple


class Area(NamedTuple):
    """Files (patterns), and the tests that are to notice a change in them.

    Those that are ``far`` import much else, and are asked when the near ones pass.
    """

    sources: tuple[str, ...]
    near: tuple[str, ...]
    far: tuple[str, ...] = ()
    marked: str = "not slow and not search and not live and not kafka and not spark"


# Doctests are tests where `make test` runs them too (testpaths in pyproject.toml).
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
        ("tests/broker/log",),
        ("tests/broker/cluster",),
    ),
    "groups": Area(
        ("broker/groups/**/*.py",),
        ("tests/broker/groups",),
        (
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
            "tests/virtual/test_whole_broker.py",
            "tests/virtual/test_contained_failures.py",
        ),
        # With sockets: half of the code is for them alone.
        marked="not slow and not search and not kafka and not spark",
    ),
    "statistics": Area(
        ("spark_analysis/statistics/**/*.py",),
        (
            "spark_analysis/statistics",
            *(
                f"tests/spark_analysis/test_{name}.py"
                for name in (
                    "attribution",
                    "bootstrap_t",
                    "comparison",
                    "coverage",
                    "drawn_intervals",
                    "exceedance",
                    "factorial",
                    "groups",
                    "intervals",
                    "pairs",
                    "quantiles",
                    "screening",
                    "sign_flip",
                    "verdict",
                )
            ),
        ),
    ),
}
# Code that needs what is not there in a quick run.
LEFT_OUT: Final = ("*/__init__.py", "*/flush_shell.py")
