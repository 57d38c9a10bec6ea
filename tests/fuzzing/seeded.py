"""The seeded half of `make fuzz`: whole brokers in virtual time, one per seed.

Every tenth run includes requests of controllers. A failing seed reproduces its failure:
``python -m tests.fuzzing.seeded --seed SEED --count 1``.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from tests.fuzzing.findings import Findings
from tests.fuzzing.frames import ALL, OF_CLIENTS
from tests.fuzzing.known import is_known
from tests.fuzzing.onslaught import Outcome, onslaught
from tests.fuzzing.processes import in_fresh_processes

FRAMES = 300
# Limits a broker's memory, so that exhaustion is a finding and spares the machine.
_MEMORY_BYTES = 3 << 30
AGAIN = "python -m tests.fuzzing.seeded --seed {} --count 1"


class Run(NamedTuple):
    """Result of a seed: the outcome, or None and whether the failure is known."""

    seed: int
    outcome: Outcome | None
    was_known: bool = False


def one_run(seed: int, findings: Path) -> Run:
    """Play a seed; a failure is written to ``findings``."""
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    keys = OF_CLIENTS if seed % 10 else ALL
    try:
        return Run(seed, onslaught(seed, keys, FRAMES))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        Findings(findings).note(error, AGAIN.format(seed))
        return Run(seed, None, is_known(error))


def main() -> None:
    """Run seeds until the time or count is reached, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=60 * 24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    chosen = parser.parse_args()
    seeds = islice(count(chosen.seed), chosen.count)
    findings = Findings(chosen.out / "findings")
    total, runs, failed = Outcome(), 0, []
    known = 0
    began = last = time.monotonic()
    play = partial(one_run, findings=findings.directory)
    for run in in_fresh_processes(
        play, seeds, chosen.jobs, began + chosen.minutes * 60
    ):
        runs += 1
        if run.outcome is not None:
            total.add(run.outcome)
        elif run.was_known:
            known += 1
        else:
            failed.append(run.seed)
            print(f"seed {run.seed} failed", flush=True)
        if time.monotonic() - last > 60:
            last = time.monotonic()
            print(f"{runs * FRAMES} frames, {len(failed)} failures", flush=True)
    _tell(total, chosen.seed, runs, known, len(failed), time.monotonic() - began)
    for name in findings.told():
        print(f"  {findings.directory / name}")
    sys.exit(bool(failed))


def _tell(
    total: Outcome, seed: int, runs: int, known: int, failed: int, seconds: float
) -> None:
    print(
        f"seeds {seed} to {seed + runs - 1}: "
        f"{runs * FRAMES} frames in {seconds:.0f} s\n"
        f"  answered   {total.answered.total():>9}  of {len(total.answered)} versions\n"
        f"  acks=0     {total.unanswered:>9}\n"
        f"  closed     {total.closed:>9}\n"
        f"  hung up    {total.waited:>9}\n"
        f"  runs ended by a known fault {known}, by a new one {failed}"
    )


if __name__ == "__main__":
    main()
