"""Pytest plugin: record the functions that tests reach, and run selected tests.

``--reached FILE`` writes, as JSON, the CPU seconds of each test and the functions of
the tree that it called. ``--only FILE`` runs the listed tests in the file's order. It
ends the process in a test that exceeds its limit of CPU time.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest
from hypothesis import Phase, settings

# Key of functions called at import, or by fixtures of several tests.
SHARED: Final = "shared"
# Elapsed time may be this multiple of the CPU limit: tests wait, machines are busy.
WAITING_TIMES: Final = 10
ENDED_BY: Final = (signal.SIGPROF, signal.SIGALRM)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add both options."""
    parser.addoption("--reached", type=Path, help="write what each test reaches")
    parser.addoption(
        "--only", type=Path, help="a file of the tests to run, a line each"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start tracing before the first test is imported."""
    if (file := config.getoption("--reached")) is not None:
        config.pluginmanager.register(_Listener(file, config.rootpath))
    if (file := config.getoption("--only")) is not None:
        config.pluginmanager.register(_Chosen(file))
        take_examples_quickly()


def take_examples_quickly() -> None:
    """Make hypothesis stop at any failing example instead of the smallest."""
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", settings(), phases=phases)
    settings.load_profile("mutants")


@contextmanager
def limited(limit_s: float) -> Iterator[None]:
    """End the process if the block takes more CPU seconds.

    An unhandled signal ends even a loop outside Python.
    """
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    signal.setitimer(signal.ITIMER_REAL, WAITING_TIMES * limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Chosen:
    """Runs selected tests, each within its CPU limit, on a machine of any load."""

    def __init__(self, file: Path) -> None:
        lines = (line.rpartition("\t") for line in file.read_text().splitlines())
        self._limits_s = {name: float(limit_s) for name, _, limit_s in lines}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        places = {name: place for place, name in enumerate(self._limits_s)}
        items[:] = [item for item in items if item.nodeid in places]
        items.sort(key=lambda item: places[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with limited(self._limits_s[item.nodeid]):
            return (yield)


class _Listener:
    """Records calls of the tree's functions, by test."""

    def __init__(self, file: Path, root: Path) -> None:
        self._file = file
        self._root = f"{root}/"
        self._called: dict[str, set[CodeType]] = {SHARED: set()}
        self._took_s: dict[str, float] = {}
        self._now = self._called[SHARED]
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, event: str, argument: object) -> None:
        self._now.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.process_time()
        self._now = own = self._called.setdefault(item.nodeid, set())
        # A test may have stopped tracing, as hypothesis does when it explains a
        # failure.
        sys.settrace(self._call)
        result = yield
        self._took_s[item.nodeid] = time.process_time() - began
        assert self._now is own
        self._now = self._called[SHARED]
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        before = self._now
        if fixturedef.scope != "function":
            self._now = self._called[SHARED]
        try:
            return (yield)
        finally:
            self._now = before

    def pytest_unconfigure(self) -> None:
        sys.settrace(None)
        threading.settrace(None)
        tests = {
            name: {"seconds": self._took_s.get(name, 0), "functions": self._of(codes)}
            for name, codes in self._called.items()
        }
        self._file.write_text(json.dumps(tests))

    def _of(self, codes: set[CodeType]) -> list[str]:
        """Return functions as file and first line."""
        return sorted(
            f"{code.co_filename.removeprefix(self._root)}:{code.co_firstlineno}"
            for code in codes
            if code.co_filename.startswith(self._root)
            and code.co_name != "<module>"
            and "/tests/" not in code.co_filename
        )
