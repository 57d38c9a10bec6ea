"""Pytest plugin: collect tests once, and run some of them for each mutant.

Most of a mutant's run time is imports and collection; without them a quickly detected
mutant takes a twentieth of the CPU time. With ``--serve FD``, a process that has
collected its tests reads requests from a socket and forks for each one. The child does
not import the changed file: it replaces the code of existing functions. This suits
functions that have not been called yet (`Reach.is_called_late`).
"""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

from tests.mutants.reached import limited, take_examples_quickly

# Exit statuses of a child: tests passed, one failed, a new process is needed.
PASSED, FAILED, UNFIT = 0, 1, 2
# A mutant may try to allocate all memory.
MEMORY_BYTES: Final = 16 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--serve", type=int, help="the descriptor of a socket")


def pytest_configure(config: pytest.Config) -> None:
    """Set hypothesis's profile for mutants."""
    if config.getoption("--serve") is not None:
        take_examples_quickly()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Read one request per line, and answer with its child's result."""
    if (descriptor := session.config.getoption("--serve")) is None:
        return None
    with socket.socket(fileno=descriptor) as peer, peer.makefile("rw") as lines:
        print("ready", file=lines, flush=True)
        for line in lines:
            child = os.fork()
            if not child:
                _end_as_the_tests_do(session, json.loads(line))
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), file=lines, flush=True)
    return True


def _end_as_the_tests_do(session: pytest.Session, asked: dict[str, Any]) -> None:
    """Run the requested tests until one fails, and end the process."""
    outcome = FAILED
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        if not changed(asked["path"], asked["source"], asked["new"]):
            outcome = UNFIT
        elif _pass(session, asked["limits_s"]):
            outcome = PASSED
    finally:
        os._exit(outcome)


def _pass(session: pytest.Session, limits_s: dict[str, float]) -> bool:
    items = {item.nodeid: item for item in session.items}
    chosen = [items[name] for name in limits_s]
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        with limited(limits_s[item.nodeid]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return False
    return True


def changed(path: str, source: str, new: str) -> bool:
    """Replace the code of a file's functions; return whether all could be replaced.

    The two sources differ in the body of one function. A file that is not imported yet
    is read from disk with its change.
    """
    old_code, new_code = (compile(it, path, "exec") for it in (source, new))
    codes = {_key(old): new for old, new in _pairs(old_code, new_code)}
    functions = [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType and each.__code__.co_filename == path
    ]
    try:
        for function in functions:
            function.__code__ = codes[_key(function.__code__)]
    except (KeyError, ValueError):
        # The change removes an inner function, or a variable of an outer one.
        return False
    return True


def _key(code: CodeType) -> tuple[object, ...]:
    """Return a function's key, unique among functions of one name and line."""
    return code.co_qualname, code.co_firstlineno, *code.co_positions()


def _pairs(old: CodeType, new: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    yield old, new
    inner = [
        [each for each in code.co_consts if isinstance(each, CodeType)]
        for code in (old, new)
    ]
    if len(inner[0]) == len(inner[1]):
        for pair in zip(*inner, strict=True):
            yield from _pairs(*pair)
