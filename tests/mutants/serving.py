"""A plugin of pytest's: tests are collected once, and some of them run for each mutant.

Most of what a mutant takes is imports and collection: without them one that is soon
noticed takes a twentieth of the CPU. With ``--serve FD`` a process
that has collected its tests reads requests from a socket, and forks for each of them.
The child does not import what was changed: it gives the functions that are there the
code that they have in the changed file. So this is for changes of functions that nobody
has called yet (`Reach.is_called_late`).
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

# What a child says: the tests pass, or one fails, or the change needs a new process.
PASSED, FAILED, UNFIT = 0, 1, 2
# A mutant may ask for all the memory there is.
MEMORY_BYTES: Final = 16 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--serve", type=int, help="the descriptor of a socket")


def pytest_configure(config: pytest.Config) -> None:
    """Take the profile of hypothesis that mutants are tried with."""
    if config.getoption("--serve") is not None:
        take_examples_quickly()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Answer each request, a line, with how its child ended, until there is none."""
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
    """Run the tests that are asked for, as long as they pass, and end the process."""
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
    """Give all functions of a file the code of another source; tell whether that fits.

    The two differ in the body of one function. Code of a file that was not imported yet
    is found changed on the disk.
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
        # Lost with the change: a function inside, or a variable of one around.
        return False
    return True


def _key(code: CodeType) -> tuple[object, ...]:
    """Key of a function, unique also among those with its name and line."""
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
