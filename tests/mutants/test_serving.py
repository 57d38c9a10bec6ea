"""In-place change of functions, and the process that serves tests."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.mutants.asking import Served
from tests.mutants.mutations import Mutation
from tests.mutants.reached import ENDED_BY
from tests.mutants.sampling import ROOT, Mutant
from tests.mutants.serving import FAILED, PASSED, changed

SOURCE = """
import functools

def plain(x): return x + 1

def maker(factor):
    def made(x): return x * factor
    return made

twice = maker(2)
pair = (lambda x: x - 1, lambda x: x - 2)

class Kind:
    @property
    def size(self): return 10 + 1
    @functools.cached_property
    def later(self): return [x + 1 for x in (1, 2)]
    async def wait(self):
        def inner(): return 5 - 1
        return inner()
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "tried.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("tried", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def awaited(module: ModuleType) -> object:
    with pytest.raises(StopIteration) as ended:
        module.Kind().wait().send(None)
    return ended.value.value


@pytest.mark.parametrize(
    ("before", "after", "ask", "old", "new"),
    [
        ("return x + 1", "return x - 1", lambda it: it.plain(3), 4, 2),
        ("x * factor", "x // factor", lambda it: it.twice(3), 6, 1),
        ("x - 2", "x + 2", lambda it: [f(3) for f in it.pair], [2, 1], [2, 5]),
        ("10 + 1", "10 - 1", lambda it: it.Kind().size, 11, 9),
        ("[x + 1", "[x - 1", lambda it: it.Kind().later, [2, 3], [0, 1]),
        ("5 - 1", "5 + 1", awaited, 4, 6),
    ],
)
def test_functions_are_changed_where_they_are(
    module: ModuleType, before: str, after: str, ask, old: object, new: object
) -> None:
    assert ask(module) == old
    assert module.__file__ is not None
    assert changed(module.__file__, SOURCE, SOURCE.replace(before, after))
    assert ask(module) == new


def test_a_change_that_loses_a_variable_does_not_fit(module: ModuleType) -> None:
    assert module.__file__ is not None
    assert not changed(module.__file__, SOURCE, SOURCE.replace("x * factor", "x * 2"))


def test_a_process_that_has_collected_tells_how_the_tests_of_each_mutant_end(
    tmp_path: Path,
) -> None:
    source = "def answer():\n    value = 1\n    return value\n"
    (tmp_path / "tried_again.py").write_text(source)
    (tmp_path / "test_it.py").write_text(
        "import tried_again\n"
        "def test_less():\n    assert tried_again.answer() < 2\n"
        "def test_more():\n    assert tried_again.answer() > 0\n"
    )

    def mutant(new: str) -> Mutant:
        start = source.index("1")
        change = Mutation(start, start + 1, new, "constant", 2)
        return Mutant("area", "tried_again.py", source, change)

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "tests.mutants.reached", "-c", os.devnull, "--rootdir=."]
    less, more = ({f"test_it.py::test_{name}": 5.0} for name in ("less", "more"))
    surroundings = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with Served([*command, "test_it.py"], tmp_path, surroundings) as served:
        assert served.outcome(mutant("1"), less | more) == PASSED
        assert served.outcome(mutant("2"), more) == PASSED
        assert served.outcome(mutant("2"), more | less) == FAILED
        assert served.outcome(mutant("-1"), less) == PASSED
        quick = dict.fromkeys(less, 0.2)
        forever = mutant("1\n    while True: pass")
        assert -served.outcome(forever, quick) in ENDED_BY
