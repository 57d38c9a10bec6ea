"""A plugin of pytest's: which functions a test reaches, and running only some tests.

``--reached FILE`` writes, as JSON, what each test took and the functions of the tree
that it called. ``--only FILE`` runs the tests that a file names, in its order.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

# Called while modules are imported, or for fixtures that several tests share.
SHARED: Final = "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add both options."""
    parser.addoption("--reached", type=Path, help="write what each test reaches")
    parser.addoption(
        "--only", type=Path, help="a file of the tests to run, a line each"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Begin to listen before the first test is imported."""
    if (file := config.getoption("--reached")) is not None:
        config.pluginmanager.register(_Listener(file, config.rootpath))


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Keep the tests that are named, in that order."""
    if (file := config.getoption("--only")) is not None:
        place = {
            name: number for number, name in enumerate(file.read_text().split("\n"))
        }
        items[:] = [item for item in items if item.nodeid in place]
        items.sort(key=lambda item: place[item.nodeid])


class _Listener:
    """Notes calls of the tree's functions, and for whom they were made."""

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
        began = time.perf_counter()
        self._now = own = self._called.setdefault(item.nodeid, set())
        # A test may have stopped the listening, as hypothesis does that explains.
        sys.settrace(self._call)
        result = yield
        self._took_s[item.nodeid] = time.perf_counter() - began
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
