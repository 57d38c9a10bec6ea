"""Environment of every test: reproducible examples, no time limits, its process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from simulation.virtual_time.determinism import deterministic

# `deterministic` draws the same examples every time, so a red run is red again;
# HYPOTHESIS_PROFILE=explore draws new ones and prints how to repeat a failure.
settings.register_profile(
    "deterministic",
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("explore", max_examples=1_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "deterministic"))

# In which order Trio runs tasks that are ready together: the same in every run.
_TRIO_SEED = int(os.environ.get("TRIO_SEED", "0"))

# Files for a copy of the tree, where they import each other.
collect_ignore = ["adding/new"]


def pytest_report_header() -> str:
    """Report the seed that repeats this run."""
    return f"Trio's seed: {_TRIO_SEED} (TRIO_SEED=N takes another)"


@pytest.fixture(autouse=True)
def _trio_is_deterministic() -> Iterator[None]:
    """Make Trio's choices follow from the seed, in every test and its fixtures."""
    with deterministic(_TRIO_SEED):
        yield


# Folders whose tests share a process: what they start is dear (Apache
# Kafka, a Spark session), or is timed (a broker) and must not meet one of its kind.
_GROUPS = {
    "tests/kafka/": "sockets",
    "tests/live/": "sockets",
    "tests/soak/": "sockets",
    "tests/bad_days/": "sockets",
    "tests/exactly_once/": "sockets",
    "tests/client/test_client_live": "sockets",
    "tests/spark_analysis/": "spark",
    "tests/experiments/test_executors": "spark",
}
# The long ones: begun last, one of them would leave the other processes idle.
_ORDER = (
    *("sockets", "spark"),
    "tests/web_console/test_console_in_browser.py",
    "tests/simulation/test_swarm.py",
    "tests/model/test_worlds_agree.py",
    "tests/virtual/test_keys_at_their_extremes.py",
)


def _group(nodeid: str) -> str:
    """Return the name of what must run in one process: a group, else a file."""
    for start, group in _GROUPS.items():
        if nodeid.startswith(start):
            return group
    return nodeid.partition("::")[0]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Put the long groups first where processes share the work."""
    if hasattr(config, "workerinput"):
        rank = {group: number for number, group in enumerate(_ORDER)}
        items.sort(key=lambda item: rank.get(_group(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Make what deals tests to the processes of `make test`."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return GroupScheduling(config, log)
