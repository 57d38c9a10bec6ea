"""`make mutants`: change one thing at a time, and see whether the tests notice.

Works in a copy of the tree, never in the tree itself. What survives is printed as a
diff: each is equivalent, for a reason (equivalents.toml), or lacks a test. The names of
the survivors are kept in a file, and ``--again FILE`` asks about them alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutants.areas import AREAS
from tests.mutants.equivalents import equivalents
from tests.mutants.nearest import Reach
from tests.mutants.sampling import ROOT, Mutant, every_mutant, sample

_QUICK: Final = "not slow and not live and not kafka and not spark"
# A mutant may be slower than the tree that it was made from, may never end, or ask for
# all the memory there is.
_TIMES, _PLUS_S = 3, 20
_MEMORY_BYTES: Final = 16 << 30
KILLED, TIMED_OUT, SURVIVED = "killed", "timed out", "survived"
EQUIVALENT = "equivalent"


@dataclass(frozen=True)
class Unchanged:
    """What the tests of an area do where nothing is changed."""

    reach: Reach
    limit_s: float


def main() -> None:
    """Draw, run, tell; the exit status says whether a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument(
        "--skip", type=int, default=0, help="of those drawn, from the first"
    )
    parser.add_argument("--areas", default=",".join(AREAS))
    parser.add_argument(
        "--again", type=Path, help="a file of names, instead of a sample"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants")
    chosen = parser.parse_args()
    areas = chosen.areas.split(",")
    if chosen.again:
        names = set(chosen.again.read_text().splitlines())
        drawn = [it for area in areas for it in every_mutant(area) if it.name in names]
        said = f"{chosen.again}"
    else:
        drawn = sample(chosen.seed, chosen.count, areas)[chosen.skip :]
        said = f"seed {chosen.seed}, {chosen.skip} to {chosen.count}"
    chosen.out.mkdir(parents=True, exist_ok=True)
    kept = chosen.out / f"survivors-{chosen.seed}-{chosen.skip}-{chosen.count}.txt"
    with tempfile.TemporaryDirectory() as directory, kept.open("w") as survivors:
        runs = _Runs(_copy(Path(directory)), chosen.out.resolve())
        counts: Counter[str] = Counter()
        # Area by area: what is learned of the unchanged tests of one is then at hand.
        for mutant in sorted(drawn, key=lambda it: areas.index(it.area)):
            fate = runs.fate(mutant)
            counts[fate] += 1
            line = mutant.mutation.line
            print(f"{fate}: {mutant.path}:{line} {mutant.name}", flush=True)
            if fate == SURVIVED:
                print(mutant.diff(), flush=True)
                survivors.write(f"{mutant.name}\n")
                survivors.flush()
    asked = counts.total() - counts[EQUIVALENT]
    noticed = asked - counts[SURVIVED]
    print(f"{said}: {noticed} of {asked} noticed, {dict(counts)}; survivors: {kept}")
    sys.exit(counts[SURVIVED] > 0)


class _Runs:
    """A copy of the tree, and what was found about its tests as it is."""

    def __init__(self, copy: Path, kept: Path) -> None:
        self._copy = copy
        self._kept = kept
        self._tree = _digest(copy)
        self._unchanged: dict[str, Unchanged] = {}
        self._equivalents = equivalents()
        self._written_s = 0

    def fate(self, mutant: Mutant) -> str:
        """Return what becomes of a mutant."""
        if mutant.name in self._equivalents:
            return EQUIVALENT
        if mutant.area not in self._unchanged:
            self._unchanged[mutant.area] = self._baseline(mutant.area)
        unchanged = self._unchanged[mutant.area]
        tests = unchanged.reach.nearest_first(mutant)
        if not tests:
            return SURVIVED
        near = AREAS[mutant.area].near
        stages = (
            [name for name in tests if name.startswith(near)],
            [name for name in tests if not name.startswith(near)],
        )
        self._put(mutant.path, mutant.new())
        try:
            for names in filter(None, stages):
                passed = self._pass(names, unchanged.limit_s)
                if not passed:
                    return TIMED_OUT if passed is None else KILLED
        finally:
            self._put(mutant.path, mutant.source)
        return SURVIVED

    def _put(self, path: str, source: str) -> None:
        """Write a file of the copy; its time is another one each time.

        By their times Python tells whether what it has compiled is out of date.
        """
        self._written_s += 1
        (self._copy / path).write_text(source)
        os.utime(self._copy / path, (self._written_s, self._written_s))

    def _pass(self, tests: list[str], limit_s: float) -> bool | None:
        """Return whether these tests pass, in this order, up to the first failure."""
        only = self._copy / "only.txt"
        only.write_text("\n".join(tests))
        files = sorted({name.partition("::")[0] for name in tests})
        return self._run(limit_s, "-x", f"--only={only}", *files)

    def _baseline(self, area: str) -> Unchanged:
        """Return what the tests of an area take; they must pass unchanged."""
        report = self._kept / f"reached-{area}-{self._tree}.json"
        if not report.exists():
            began = time.monotonic()
            tests = (*AREAS[area].near, *AREAS[area].far)
            if not self._run(None, f"--reached={report}", *tests):
                raise SystemExit(f"the tests of {area} fail without any change")
            print(f"{area}: {time.monotonic() - began:.0f} s unchanged", flush=True)
        reach = Reach.read(json.loads(report.read_text()))
        return Unchanged(reach, _TIMES * sum(reach.seconds.values()) + _PLUS_S)

    def _run(self, limit_s: float | None, *arguments: str) -> bool | None:
        """Return whether tests pass in the copy; None if they do not end."""
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", _QUICK]
        command += ["-p", "no:cacheprovider", "-p", "tests.mutants.reached", *arguments]
        surroundings = {**os.environ, "PYTHONPATH": str(self._copy)}
        surroundings["OMP_NUM_THREADS"] = "1"
        ran = subprocess.Popen(
            command,
            cwd=self._copy,
            env=surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        resource.prlimit(ran.pid, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        try:
            said, _ = ran.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            ran.kill()
            ran.communicate()
            return None
        if ran.returncode and limit_s is None:
            print(said.decode()[-4000:])
        return ran.returncode == 0


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


def _digest(tree: Path) -> str:
    """Name a tree by what is in it, but for these programs."""
    digest = hashlib.sha256()
    for path in sorted(tree.rglob("*.py")):
        if "mutants" not in path.parts:
            digest.update(f"{path.relative_to(tree)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    main()
