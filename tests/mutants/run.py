"""`make mutants`: make single changes, and check that the tests detect them.

It works in a copy of the tree. Survivors are printed as diffs: each one is either
equivalent, for a reason given in equivalents.toml, or lacks a test. Their names are
kept in a file, and ``--again FILE`` runs only these.
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
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.mutants.areas import AREAS
from tests.mutants.asking import Served
from tests.mutants.equivalents import equivalents
from tests.mutants.nearest import Reach
from tests.mutants.reached import ENDED_BY, WAITING_TIMES
from tests.mutants.sampling import ROOT, Mutant, every_mutant, sample
from tests.mutants.serving import MEMORY_BYTES

# A mutant may be slow, or never end: a factor and a constant, in seconds, for the CPU
# limit of each test.
_TIMES, _PLUS_S = 3, 3
_PYTEST: Final = (
    *(sys.executable, "-m", "pytest", "-q", "-n0"),
    *("-p", "no:cacheprovider", "-p", "tests.mutants.reached"),
)
KILLED, TIMED_OUT, SURVIVED = "killed", "timed out", "survived"
EQUIVALENT = "equivalent"


def main() -> None:
    """Draw, run and report mutants; exit with a status of 1 if one survived."""
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
    # By area, to reuse results of its unchanged tests.
    areas = chosen.areas.split(",")
    drawn = [it for area in areas for it in drawn if it.area == area]
    with (
        tempfile.TemporaryDirectory() as directory,
        closing(_Runs(_copy(Path(directory)), chosen.out.resolve())) as runs,
    ):
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
    """A copy of the tree, and cached results.

    The cache holds each area's unchanged test run and the fate of each mutant, for the
    same tree.
    """

    def __init__(self, copy: Path, kept: Path) -> None:
        self._copy = copy
        self._kept = kept
        self._tree = _digest(copy)
        self._reach: dict[str, Reach] = {}
        self._served: tuple[str, Served] | None = None
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
        """Return the fate of a mutant."""
        name = mutant.name
        if name in self._equivalents:
            return EQUIVALENT
        # Identical lines of a function have one name.
        place = f"{mutant.mutation.line} {name}"
        if place not in self._fates:
            self._fates[place] = self._find_out(mutant)
            with self._fates_file.open("a") as file:
                file.write(f"{self._fates[place]}\t{place}\n")
        if self._fates[place] == SURVIVED:
            self.survivors.append(name)
        return self._fates[place]

    def _find_out(self, mutant: Mutant) -> str:
        area = mutant.area
        if area not in self._reach:
            self._reach[area] = self._unchanged(area)
        reach = self._reach[area]
        # Tests that import much other code come last.
        names = reach.nearest_first(mutant)
        names.sort(key=lambda name: not name.startswith(AREAS[area].near))
        limits_s = {name: _TIMES * reach.seconds[name] + _PLUS_S for name in names}
        served = self._served_of(area) if reach.is_called_late(mutant) else None
        # The file is also written for child processes of tests and for late imports.
        self._put(mutant.path, mutant.new())
        try:
            status = served.outcome(mutant, limits_s) if served else None
            if status is None:
                status = self._anew(limits_s)
        finally:
            self._put(mutant.path, mutant.source)
        if -status in ENDED_BY:
            return TIMED_OUT
        return KILLED if status else SURVIVED

    def _served_of(self, area: str) -> Served:
        """Return the process that has collected an area's tests; there is only one."""
        name, served = self._served or ("", None)
        if name != area or served is None:
            self.close()
            tests = (*AREAS[area].near, *AREAS[area].far)
            command = [*_PYTEST, "-m", AREAS[area].marked, *tests]
            served = Served(command, self._copy, self._surroundings())
            self._served = area, served
        return served

    def close(self) -> None:
        """End the last serving process."""
        if self._served is not None:
            self._served[1].close()
            self._served = None

    def _put(self, path: str, source: str) -> None:
        """Write a file of the copy with a new modification time.

        Python compares this time to detect outdated compiled files.
        """
        self._written_s += 1
        (self._copy / path).write_text(source)
        os.utime(self._copy / path, (self._written_s, self._written_s))

    def _anew(self, limits_s: dict[str, float]) -> int:
        """Run these tests in a separate process, up to the first failure.

        Return its exit status, or minus the number of the signal that ended it.
        """
        if not limits_s:
            return 0
        only = self._copy / "only.txt"
        lines = (f"{name}\t{limit_s}\n" for name, limit_s in limits_s.items())
        only.write_text("".join(lines))
        files = sorted({name.partition("::")[0] for name in limits_s})
        # Without a filter by marks: the tests are selected by name.
        return self._run(
            WAITING_TIMES * sum(limits_s.values()),
            *("-x", "-m", "", f"--only={only}"),
            *files,
        )

    def _unchanged(self, area: str) -> Reach:
        """Return the time and calls of an area's tests; they must pass unchanged."""
        report = self._kept / f"reached-{area}-{self._tree}.json"
        if not report.exists():
            began = time.monotonic()
            tests = (*AREAS[area].near, *AREAS[area].far)
            marked = f"-m{AREAS[area].marked}"
            if self._run(None, f"--reached={report}", marked, *tests):
                raise SystemExit(f"the tests of {area} fail without any change")
            print(f"{area}: {time.monotonic() - began:.0f} s unchanged", flush=True)
        return Reach.read(json.loads(report.read_text()))

    def _run(self, limit_s: float | None, *arguments: str) -> int:
        """Run tests in the copy; without a limit, print their failures."""
        ran = subprocess.Popen(
            [*_PYTEST, *arguments],
            cwd=self._copy,
            env=self._surroundings(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        resource.prlimit(ran.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        try:
            said, _ = ran.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            ran.kill()
            ran.communicate()
            return -ENDED_BY[0]
        if ran.returncode and limit_s is None:
            print(said.decode()[-4000:])
        return ran.returncode

    def _surroundings(self) -> dict[str, str]:
        # Multithreaded BLAS would take the CPU of other tests.
        return {**os.environ, "PYTHONPATH": str(self._copy), "OMP_NUM_THREADS": "1"}


def _copy(to: Path) -> Path:
    """Copy the files that git tracks, in their current state."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
    return to


def _digest(tree: Path) -> str:
    """Return a digest of a tree's content, without these programs."""
    digest = hashlib.sha256()
    for path in sorted(tree.rglob("*.py")):
        if "mutants" not in path.parts:
            digest.update(f"{path.relative_to(tree)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    main()
