"""Mutants drawn from a seed over all areas, with names independent of line numbers."""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from tests.mutants.areas import AREAS, LEFT_OUT
from tests.mutants.mutations import Mutation, mutations

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    area: str
    path: str
    source: str
    mutation: Mutation

    def new(self) -> str:
        """Return the changed source of the file."""
        return self.mutation.of(self.source)

    def diff(self) -> str:
        """Return the change as a patch."""
        old, new = (it.splitlines(keepends=True) for it in (self.source, self.new()))
        return "".join(difflib.unified_diff(old, new, self.path, self.path, n=2))

    @property
    def name(self) -> str:
        """File, function, line before and after; equal for identical lines."""
        first = self.source.count("\n", 0, self.mutation.start)
        last = self.source.count("\n", 0, self.mutation.end)
        old = self.source.splitlines()[first : last + 1]
        before = " ".join(each.strip() for each in old)
        after = self.new().splitlines()[first].strip()
        return f"{self.path}:{_within(self.source, first + 1)}: {before} -> {after}"


def sample(seed: int, count: int) -> list[Mutant]:
    """Draw mutants uniformly over all areas, without replacement."""
    every = [mutant for area in AREAS for mutant in every_mutant(area)]
    return random.Random(seed).sample(every, min(count, len(every)))


def every_mutant(area: str) -> Iterator[Mutant]:
    """Yield all mutants of an area, file by file."""
    for pattern in AREAS[area].sources:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if not any(fnmatch(name, each) for each in LEFT_OUT):
                source = path.read_text()
                for mutation in mutations(source):
                    yield Mutant(area, name, source, mutation)


def _within(source: str, line: int) -> str:
    """Return the dotted name of the class and function that contain a line."""
    names: list[str] = []
    inside: ast.AST | None = ast.parse(source)
    while inside is not None:
        inside = next(
            (
                node
                for node in ast.iter_child_nodes(inside)
                if isinstance(node, ast.stmt)
                and node.lineno <= line <= (node.end_lineno or node.lineno)
            ),
            None,
        )
        if isinstance(inside, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(inside.name)
    return ".".join(names) or "module"
