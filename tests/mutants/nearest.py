"""Order of tests for a mutant: those that reach its function."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Self

from tests.mutants.reached import SHARED
from tests.mutants.sampling import Mutant


@dataclass(frozen=True)
class Reach:
    """Functions called by an area's tests; ``functions`` as file and first line."""

    seconds: dict[str, float]
    functions: dict[str, frozenset[str]]

    @classmethod
    def read(cls, written: dict[str, Any]) -> Self:
        """Read the file that ``--reached`` wrote."""
        return cls(
            {name: test["seconds"] for name, test in written.items()},
            {name: frozenset(test["functions"]) for name, test in written.items()},
        )

    def is_called_late(self, mutant: Mutant) -> bool:
        """Return whether a mutant's function is called only within tests."""
        function = function_of(mutant)
        return function is not None and function not in self.functions[SHARED]

    def nearest_first(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the changed function, quick ones first.

        Code outside functions, or called by shared fixtures, concerns all tests.
        """
        tests = self.seconds.keys() - {SHARED}
        if self.is_called_late(mutant):
            function = function_of(mutant)
            tests = {name for name in tests if function in self.functions[name]}
        stem = mutant.path.rpartition("/")[2].removesuffix(".py")

        def distance(name: str) -> tuple[bool, float, str]:
            own = stem in name.partition("::")[0].rpartition("/")[2]
            return not own and self.seconds[name] > 0.01, self.seconds[name], name

        return sorted(tests, key=distance)


def function_of(mutant: Mutant) -> str | None:
    """Return the innermost function that a mutant changes, if any."""
    found = None
    for node in ast.walk(ast.parse(mutant.source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            body = node.body[0].lineno
            if body <= mutant.mutation.line <= node.end_lineno:
                # Breadth first, so an inner function comes later.
                decorators = [each.lineno for each in node.decorator_list]
                first = min([node.lineno, *decorators])
                found = f"{mutant.path}:{first}"
    return found
