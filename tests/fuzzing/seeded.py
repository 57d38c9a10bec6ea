"""`make fuzz`, its other half: whole brokers in virtual time, a seed for each.

Every tenth is told by controllers as well as by clients. A failing seed shows the same
failure again: ``python -m tests.fuzzing.seeded --seed SEED --count 1``.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice
from pathlib import Path

from tests.fuzzing.findings import Findings
from tests.fuzzing.frames import ALL, OF_CLIENTS
from tests.fuzzing.known import is_known
from tests.fuzzing.onslaught import Outcome, onslaught

FRAMES = 300
# A request that makes the broker take more is a finding, and not the machine's end.
_MEMORY_BYTES = 3 << 30
AGAIN = "python -m tests.fuzzing.seeded --seed {} --count 1"


def one_run(seed: int, findings: Path) -> tuple[Outcome | None, bool]:
    """Return what came of a seed; None if it failed, and whether that was known."""
    logging.disable()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    keys = OF_CLIENTS if seed % 10 else ALL
    try:
        return onslaught(seed, keys, FRAMES), False
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        Findings(findings).note(error, AGAIN.format(seed))
        return None, is_known(error)


def main() -> None:
    """Run seeds one after the other until time or count is up, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first one")
    parser.add_argument("--count", type=int, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=60 * 24)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"))
    chosen = parser.parse_args()
    seeds = islice(count(chosen.seed), chosen.count)
    findings = Findings(chosen.out / "findings")
    total, runs, known, failed = Outcome(), 0, 0, 0
    began = last = time.monotonic()
    for outcome, was_known in _runs(seeds, chosen, findings.directory):
        runs += 1
        if outcome is None:
            known += was_known
            failed += not was_known
        else:
            total.add(outcome)
        if time.monotonic() - last > 60:
            last = time.monotonic()
            print(f"{runs * FRAMES} frames, {failed} failures", flush=True)
    _tell(total, chosen.seed, runs, known, failed, time.monotonic() - began)
    for name in findings.told():
        print(f"  {findings.directory / name}")
    sys.exit(bool(failed))


def _runs(
    seeds: Iterator[int], chosen: argparse.Namespace, findings: Path
) -> Iterator[tuple[Outcome | None, bool]]:
    """Yield what came of each run, ``jobs`` of them at a time."""
    ends = time.monotonic() + chosen.minutes * 60
    with ProcessPoolExecutor(chosen.jobs, max_tasks_per_child=200) as pool:
        running: set[Future[tuple[Outcome | None, bool]]] = set()
        while True:
            while len(running) < 2 * chosen.jobs and time.monotonic() < ends:
                seed = next(seeds, None)
                if seed is None:
                    break
                running.add(pool.submit(one_run, seed, findings))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in done)


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
