"""Code that is mutated, and code that is excluded."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.areas import AREAS
from tests.mutants.mutations import mutations
from tests.mutants.sampling import ROOT, sample


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("x = a <= b", {"x = a < b"}),
        ("x = a is not b", {"x = a is b"}),
        ("x = a < b < c", {"x = a <= b < c", "x = a < b <= c"}),
        ("x = (a) + (b)", {"x = (a) - (b)"}),
        ("x = -(a // b)", {"x = (a // b)", "x = -(a * b)"}),
        ("x = not a", {"x =  a"}),
        ("x = a and b or c", {"x = a or b or c", "x = a and b and c"}),
        ("x -= y", {"x += y"}),
        ("x = 'ä' + y, 7", {"x = 'ä' + y, 8"}),
        ("x = True", {"x = False"}),
        ("f(x)", {"pass"}),
        ("async def f():\n    await g()", {"async def f():\n    pass"}),
        ("x: int = 3", {"x: int = 4"}),
        ("assert a < b", set()),
        ("logger.info(1)", set()),
        ("raise E(1)", set()),
        ("def f(a: int = 3): return a", set()),
        ("def check(self): return 1", set()),
        ("x = 'text'", set()),
    ],
)
def test_each_change_is_a_single_one(source: str, changed: set[str]) -> None:
    assert {each.of(source) for each in mutations(source)} == changed


def test_a_sample_is_of_files_that_still_parse_and_the_same_for_a_seed() -> None:
    drawn = sample(3, 300)
    assert drawn == sample(3, 300)
    assert drawn != sample(4, 300)
    assert {mutant.area for mutant in drawn} == set(AREAS)
    for mutant in drawn:
        assert mutant.new() != mutant.source
        ast.parse(mutant.new())


def test_the_tests_of_every_area_are_there() -> None:
    for area in AREAS.values():
        for path in (*area.near, *area.far):
            assert (ROOT / path).exists(), path
