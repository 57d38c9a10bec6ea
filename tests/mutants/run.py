"""`make mutants`: change one thing at a time, and see whether the tests notice.

Works in copies of the tree, never in the tree itself. What survives is printed as a
diff: each is equivalent, for a reason, or lacks a test.
"""

from __future__ import annotations

import argparse
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from queue import Queue
from typing import Final

from tests.mutants.areas import AREAS, LEFT_OUT
from tests.mutants.mutations import Mutation, mutations

ROOT: Final = Path(__file__).parents[2]
_QUICK: Final = "not slow and not live and not kafka and not spark"
# A mutant may be slower than the tree that it was made from, and may never end.
_TIMES, _PLUS_S = 3, 20
KILLED, TIMED_OUT, SURVIVED = "killed", "timed out", "survived"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    area: str
    path: str
    source: str
    mutation: Mutation

    def diff(self) -> str:
        """Return the change as a patch."""
        lines = (text.splitlines(keepends=True) for text in (self.source, self.new()))
        return "".join(difflib.unified_diff(*lines, self.path, self.path, n=2))

    def new(self) -> str:
        """Return the changed file."""
        return self.mutation.of(self.source)


def main() -> None:
    """Draw, run, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--areas", default=",".join(AREAS))
    chosen = parser.parse_args()
    areas = chosen.areas.split(",")
    with tempfile.TemporaryDirectory() as directory:
        copies: Queue[Path] = Queue()
        for number in range(chosen.jobs):
            copies.put(_copy(Path(directory) / str(number)))
        # From the tree as it is now: it may change while this goes on.
        drawn = sample(chosen.seed, chosen.count, areas)
        limits = {area: _baseline(copies, area) for area in areas}
        with ThreadPoolExecutor(chosen.jobs) as pool:
            fates = pool.map(lambda mutant: _fate(mutant, copies, limits), drawn)
            counts = _tell(drawn, fates)
    noticed = counts.total() - counts[SURVIVED]
    print(f"seed {chosen.seed}: {noticed} of {counts.total()} noticed: {dict(counts)}")


def sample(seed: int, count: int, areas: list[str]) -> list[Mutant]:
    """Draw mutants evenly over all that there are, none twice."""
    every = [mutant for area in areas for mutant in _mutants(area)]
    return random.Random(seed).sample(every, min(count, len(every)))


def _mutants(area: str) -> Iterator[Mutant]:
    for pattern in AREAS[area].sources:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if not any(fnmatch(name, each) for each in LEFT_OUT):
                source = path.read_text()
                for mutation in mutations(source):
                    yield Mutant(area, name, source, mutation)


def _copy(to: Path) -> Path:
    """Copy what git knows, as it is now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
    return to


def _run(copy: Path, area: str, limit_s: float | None) -> bool | None:
    """Return whether the area's tests pass in a copy; None if they do not end."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-m", _QUICK]
    command += ["-p", "no:cacheprovider", *AREAS[area].tests]
    surroundings = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    surroundings["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        ended = subprocess.run(
            command, cwd=copy, env=surroundings, capture_output=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return None
    if ended.returncode not in (0, 1, 2):
        raise RuntimeError(ended.stdout.decode()[-2000:] + ended.stderr.decode())
    return ended.returncode == 0


def _baseline(copies: Queue[Path], area: str) -> float:
    """Return a limit for the tests of an area, which must pass unchanged."""
    copy = copies.get()
    began = time.monotonic()
    passed = _run(copy, area, None)
    copies.put(copy)
    if not passed:
        raise SystemExit(f"the tests of {area} fail without any change")
    seconds = time.monotonic() - began
    print(f"{area}: {seconds:.0f} s unchanged", flush=True)
    return _TIMES * seconds + _PLUS_S


def _fate(mutant: Mutant, copies: Queue[Path], limits: dict[str, float]) -> str:
    copy = copies.get()
    target = copy / mutant.path
    try:
        target.write_text(mutant.new())
        passed = _run(copy, mutant.area, limits[mutant.area])
    finally:
        target.write_text(mutant.source)
        copies.put(copy)
    return TIMED_OUT if passed is None else SURVIVED if passed else KILLED


def _tell(drawn: list[Mutant], fates: Iterator[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for mutant, fate in zip(drawn, fates, strict=True):
        counts[fate] += 1
        place = f"{mutant.path}:{mutant.mutation.line}"
        print(f"{fate}: {mutant.mutation.kind} at {place}", flush=True)
        if fate == SURVIVED:
            print(mutant.diff(), flush=True)
    return counts


if __name__ == "__main__":
    main()
