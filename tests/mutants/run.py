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
from pathlib import Path
from typing import Final

from tests.mutants.areas import AREAS
from tests.mutants.equivalents import equivalents
from tests.mutants.nearest import Reach
from tests.mutants.reached import ENDED_BY, WAITING_TIMES
from tests.mutants.sampling import ROOT, Mutant, every_mutant, sample

# A mutant may be slower than the tree that it was made from, may never end, or ask for
# all the memory there is. Seconds of CPU for each test.
_TIMES, _PLUS_S = 3, 3
_MEMORY_BYTES: Final = 16 << 30
KILLED, TIMED_OUT, SURVIVED = "killed", "timed out", "survived"
EQUIVALENT = "equivalent"


def main() -> None:
    """Draw, run, tell; the exit status says whether a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--areas", default=",".join(AREAS), help="of the sample")
    parser.add_argument("--again", type=Path, help="names, instead of a sample")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    if chosen.again:
        names = set(chosen.again.read_text().splitlines())
        drawn = [it for area in AREAS for it in every_mutant(area) if it.name in names]
    else:
        drawn = sample(chosen.seed, chosen.count)
    # Area by area: what is learned of the unchanged tests of one is then at hand.
    areas = chosen.areas.split(",")
    drawn = [it for area in areas for it in drawn if it.area == area]
    with tempfile.TemporaryDirectory() as directory:
        runs = _Runs(_copy(Path(directory)), chosen.out.resolve())
        counts = Counter(_told(mutant, runs.fate(mutant)) for mutant in drawn)
    asked = counts.total() - counts[EQUIVALENT]
    noticed = asked - counts[SURVIVED]
    print(f"seed {chosen.seed}: {noticed} of {asked} noticed, {dict(counts)}")
    survivors = chosen.out / f"survivors-{chosen.seed}.txt"
    survivors.write_text("".join(f"{name}\n" for name in runs.survivors))
    print(f"survivors, for --again: {survivors}")
    sys.exit(counts[SURVIVED] > 0)


def _told(mutant: Mutant, fate: str) -> str:
    print(f"{fate}: {mutant.path}:{mutant.mutation.line} {mutant.name}", flush=True)
    if fate == SURVIVED:
        print(mutant.diff(), flush=True)
    return fate


class _Runs:
    """A copy of the tree, and what is known of it.

    What was found out about the same tree before is not asked again: the tests of an
    area as they are, and what became of a mutant.
    """

    def __init__(self, copy: Path, kept: Path) -> None:
        self._copy = copy
        self._kept = kept
        self._tree = _digest(copy)
        self._reach: dict[str, Reach] = {}
        self._equivalents = equivalents()
        self._written_s = 0
        self._fates_file = kept / f"fates-{self._tree}.txt"
        self._fates: dict[str, str] = {}
        if self._fates_file.exists():
            for line in self._fates_file.read_text().splitlines():
                fate, _, name = line.partition("\t")
                self._fates[name] = fate
        self.survivors: list[str] = []

    def fate(self, mutant: Mutant) -> str:
        """Return what becomes of a mutant."""
        name = mutant.name
        if name in self._equivalents:
            return EQUIVALENT
        # Twin lines have one name.
        place = f"{mutant.mutation.line} {name}"
        if place not in self._fates:
            self._fates[place] = self._find_out(mutant)
            with self._fates_file.open("a") as file:
                file.write(f"{self._fates[place]}\t{place}\n")
        if self._fates[place] == SURVIVED:
            self.survivors.append(name)
        return self._fates[place]

    def _find_out(self, mutant: Mutant) -> str:
        if mutant.area not in self._reach:
            self._reach[mutant.area] = self._unchanged(mutant.area)
        reach = self._reach[mutant.area]
        tests = reach.nearest_first(mutant)
        near = AREAS[mutant.area].near
        stages = (
            [name for name in tests if name.startswith(near)],
            [name for name in tests if not name.startswith(near)],
        )
        self._put(mutant.path, mutant.new())
        try:
            for names in filter(None, stages):
                passed = self._pass(reach, names)
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

    def _pass(self, reach: Reach, tests: list[str]) -> bool | None:
        """Return whether these tests pass, in this order, up to the first failure."""
        limits_s = [_TIMES * reach.seconds[name] + _PLUS_S for name in tests]
        only = self._copy / "only.txt"
        lines = zip(tests, limits_s, strict=True)
        only.write_text("".join(f"{name}\t{limit_s}\n" for name, limit_s in lines))
        files = sorted({name.partition("::")[0] for name in tests})
        longest_s = _TIMES * sum(reach.seconds[name] for name in tests) + 10 * _PLUS_S
        # Whatever its marks: chosen they are by name.
        return self._run(
            WAITING_TIMES * longest_s, "-x", "-m", "", f"--only={only}", *files
        )

    def _unchanged(self, area: str) -> Reach:
        """Return what the tests of an area take and call; they must pass unchanged."""
        report = self._kept / f"reached-{area}-{self._tree}.json"
        if not report.exists():
            began = time.monotonic()
            tests = (*AREAS[area].near, *AREAS[area].far)
            marked = f"-m{AREAS[area].marked}"
            if not self._run(None, f"--reached={report}", marked, *tests):
                raise SystemExit(f"the tests of {area} fail without any change")
            print(f"{area}: {time.monotonic() - began:.0f} s unchanged", flush=True)
        return Reach.read(json.loads(report.read_text()))

    def _run(self, limit_s: float | None, *arguments: str) -> bool | None:
        """Return whether tests pass in the copy; None if they do not end."""
        command = [sys.executable, "-m", "pytest", "-q", "-n0"]
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
        return None if -ran.returncode in ENDED_BY else ran.returncode == 0


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
