"""Which tests stand for which code, nearest first: a mutant is killed by the first."""

from __future__ import annotations

from typing import Final, NamedTuple


class Area(NamedTuple):
    """Files (patterns), and the tests that are to notice a change in them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


AREAS: Final = {
    "planes": Area(
        ("planes/**/*.py",),
        ("tests/planes", "tests/model", "tests/virtual"),
    ),
    "schedulers": Area(
        ("schedulers/**/*.py",),
        ("tests/schedulers", "tests/planes", "tests/model"),
    ),
    "log": Area(
        ("broker/log/**/*.py",),
        ("tests/broker/log", "tests/broker/cluster", "tests/broker/apis"),
    ),
    "groups": Area(
        ("broker/groups/**/*.py",),
        (
            "tests/broker/groups",
            "tests/broker/apis/test_group_apis.py",
            "tests/broker/apis/test_offset_apis.py",
            "tests/client/test_groups_in_virtual_time.py",
        ),
    ),
    "network": Area(
        ("broker/network/**/*.py",),
        ("tests/broker/network", "tests/virtual"),
    ),
    "statistics": Area(
        ("spark_analysis/statistics/**/*.py",),
        ("tests/spark_analysis",),
    ),
}
# Code that needs what is not there in a quick run.
LEFT_OUT: Final = ("*/__init__.py", "schedulers/conformance.py", "*/flush_shell.py")
