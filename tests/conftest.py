"""Environment of all tests: reproducible examples, no deadlines, process groups."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from simulation.virtual_time.determinism import deterministic

# `deterministic` draws the same examples in each run, so a failure is repeatable.
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

# Seed of the order in which Trio runs tasks that are ready together.
_TRIO_SEED = int(os.environ.get("TRIO_SEED", "0"))

# Files that import each other only inside a copy of the tree.
collect_ignore = ["adding/new"]


def pytest_report_header() -> str:
    """Report the seed that repeats this run."""
    return f"Trio's seed: {_TRIO_SEED} (TRIO_SEED=N takes another)"


@pytest.fixture(autouse=True)
def _trio_is_deterministic() -> Iterator[None]:
    """Derive Trio's choices from the seed, in every test and its fixtures."""
    with deterministic(_TRIO_SEED):
        yield


# Folders whose tests share a process: their fixtures are expensive (Apache Kafka, a
# Spark session), or timed (a broker) and must run one at a time.
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
# Long groups start first: started last, they would leave other processes idle.
_ORDER = (
    *("sockets", "spark"),
    "tests/web_console/test_console_in_browser.py",
    "tests/simulation/test_swarm.py",
    "tests/model/test_worlds_agree.py",
    "tests/virtual/test_keys_at_their_extremes.py",
)


def _group(nodeid: str) -> str:
    """Return the group that must run in one process, by default the file."""
    for start, group in _GROUPS.items():
        if nodeid.startswith(start):
            return group
    return nodeid.partition("::")[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage once, after all tests are there: they and their modules stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Order long groups first when several processes run the tests."""
    if hasattr(config, "workerinput"):
        rank = {group: number for number, group in enumerate(_ORDER)}
        items.sort(key=lambda item: rank.get(_group(item.nodeid), len(rank)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Make the scheduler that distributes tests to the processes of `make test`."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return GroupScheduling(config, log)
