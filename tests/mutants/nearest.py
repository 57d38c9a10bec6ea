"""In which order tests are asked about a change: those that know the file first."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from tests.mutants.sampling import Mutant


def seconds_of(report: Path) -> dict[str, float]:
    """Return how long the tests of each file took, of a JUnit report of pytest's."""
    seconds: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        seconds[case.attrib["file"]] += float(case.attrib["time"])
    return dict(seconds)


def nearest_first(mutant: Mutant, root: Path, seconds: dict[str, float]) -> list[str]:
    """Return the area's test files: its own, those that name it, the rest; fast first.

    The file that the mutant changes is itself one where it holds doctests.
    """
    module = mutant.path.removesuffix(".py").replace("/", ".")
    package, _, stem = module.rpartition(".")
    parts = {each for each in stem.split("_") if len(each) > 2}

    def distance(path: str) -> tuple[int, float]:
        text = (root / path).read_text()
        own = path == mutant.path or stem in Path(path).stem
        if own or f"{module} " in text or f"from {package} import {stem}" in text:
            return 0, seconds[path]
        if stem in text or parts & set(Path(path).stem.split("_")):
            return 1, seconds[path]
        return 2, seconds[path]

    return sorted(seconds, key=distance)
