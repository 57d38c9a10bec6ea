"""`make exactly-once`: real clients read, process and write while all are killed.

A program copies records in transactions. In each cycle, a schedule derived from the
seed kills a client, a broker, a leader or a coordinator, and restarts it after a while.
A reader of committed records runs throughout. At the end, each record must have been
copied once, none lost, no aborted record read, and no transaction left open.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.exactly_once.brokers import Brokers, OneBroker, ThreeBrokers, create_topics
from tests.exactly_once.clients import CLIENTS, Client, MissingError
from tests.exactly_once.connect import Operator
from tests.exactly_once.instances import Instance
from tests.exactly_once.readers import LiveReader, ends, read_all
from tests.exactly_once.sources import PARTITIONS, Feed, FileSource, Source, TopicSource
from tests.exactly_once.verifier import Verifier

BROKERS: Final = {1: OneBroker, 3: ThreeBrokers}
# Time limits of the first copy, and of the next one after a kill.
_HEAL_S: Final = 120.0
# Time limit from the last record to the last copy, and to the end of transactions.
_END_S: Final = 90.0
_LOOK_S: Final = 0.05
_AFTER_S, _AWAY_S = 1.5, 1.5


class FaultError(Exception):
    """A violation of exactly-once, or copying that has stopped."""


class Run:
    """One client against one set of brokers, through the cycles of one seed."""

    def __init__(self, client: Client, brokers: Brokers, at: Path, seed: int) -> None:
        self._client = client
        self._brokers = brokers
        self._rng = random.Random(seed)
        self._verifier = Verifier()
        self._began_s = time.monotonic()
        self.kills: Counter[str] = Counter()
        self._source: Source
        self._operator: Operator | None = None
        create_topics(brokers, {"target": 1 if client.reads_files else PARTITIONS})
        if client.reads_files:
            files = FileSource(at)
            self._source = files
            self._operator = Operator(at, files.files)
        else:
            create_topics(brokers, {"source": PARTITIONS})
            self._source = TopicSource(brokers.bootstrap)
        self._instances = [
            Instance(self._command(name, at, seed), at / f"{name}.log")
            for name in client.instances
        ]

    def _command(
        self, name: str, at: Path, seed: int
    ) -> Callable[[int], Sequence[str]]:
        bootstrap = self._brokers.bootstrap
        return lambda start: self._client.command(
            bootstrap, name, at, f"{seed}/{name}/{start}"
        )

    def go(self, cycles: int) -> str:
        """Run the cycles; return a summary. Raises `FaultError`."""
        rng = random.Random(self._rng.random())
        feed = Feed(self._source, rng, lambda: len(self._verifier.rows))
        reader = LiveReader(self._brokers.bootstrap, self._verifier)
        try:
            for instance in self._instances:
                instance.start()
            self._wait_for_copies(1, _HEAL_S, "at the beginning")
            for cycle in range(cycles):
                self._cycle(cycle)
            self._note("the last record")
            feed.close()
            source = self._source.values()
            self._wait_for_copies(sum(map(len, source.values())), _END_S, "at the end")
            self._note("all are copied")
        except FaultError as fault:
            logs = [it.tail() for it in self._instances]
            raise FaultError("\n".join([str(fault), self._state(), *logs])) from None
        finally:
            for instance in self._instances:
                instance.kill()
            feed.close()
            reader.close()
        return self._finish(source)

    # ---- cycles ---------------------------------------------------------------------

    def _cycle(self, cycle: int) -> None:
        roles = ("client", *self._brokers.roles, f"client and {self._brokers.roles[0]}")
        role = self._rng.choice(roles)
        instance = self._rng.choice(self._instances)
        after_s = self._rng.uniform(0, _AFTER_S)
        away_s = self._rng.uniform(0, _AWAY_S)
        draw = self._rng.random()
        self._pass(after_s)
        number = None
        if role != "client":
            number = self._brokers.number(role.removeprefix("client and "), draw)
        which = "" if number is None else f" (broker {number})"
        self._note(f"cycle {cycle}: {role}{which}, away for {away_s:.2f} s")
        if number is not None:
            self._brokers.kill(number)
        if "client" in role:
            instance.kill()
        self._pass(away_s)
        if number is not None:
            self._brokers.start(number)
        if "client" in role:
            instance.start()
        self.kills[role] += 1
        copies = len(self._verifier.rows)
        self._wait_for_copies(copies + 1, _HEAL_S, f"after cycle {cycle}")

    def _note(self, text: str) -> None:
        copies, seconds = len(self._verifier.rows), time.monotonic() - self._began_s
        print(f"{seconds:7.2f} s, {copies} copies: {text}", flush=True)

    def _wait_for_copies(self, count: int, seconds: float, when: str) -> None:
        until_s = time.monotonic() + seconds
        while len(self._verifier.rows) < count:
            self._pass(_LOOK_S)
            if time.monotonic() > until_s:
                copies = len(self._verifier.rows)
                raise FaultError(f"{copies} of {count} copies {seconds:.0f} s {when}")

    def _pass(self, seconds: float) -> None:
        """Wait, restart ended programs, and raise at the first fault."""
        until_s = time.monotonic() + seconds
        while True:
            for instance in self._instances:
                instance.tend()
            if self._operator is not None:
                self._operator.tend()
            if self._verifier.faults:
                raise FaultError("\n".join(self._verifier.faults[:10]))
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return
            time.sleep(min(left_s, _LOOK_S))

    # ---- end of a run ---------------------------------------------------------------

    def _finish(self, source: dict[int, list[bytes]]) -> str:
        where = self._brokers.bootstrap
        self._wait_until_no_transaction_is_open()
        rows = read_all(where, "target", "read_committed")
        uncommitted = read_all(where, "target", "read_uncommitted")
        self._verifier.finish(source, rows)
        if self._verifier.faults:
            raise FaultError("\n".join(self._verifier.faults[:10]))
        kills = ", ".join(f"{count} {role}" for role, count in self.kills.items())
        return (
            f"{len(rows)} copies, {len(uncommitted) - len(rows)} aborted records; "
            f"kills: {kills}; {sum(it.ends for it in self._instances)} fatal errors"
        )

    def _state(self) -> str:
        """Describe the copies so far, and the end offsets of the target."""
        where = self._brokers.bootstrap
        copied = {each: len(it) for each, it in self._verifier.copied.items()}
        stable = ends(where, "target", "read_committed")
        high = ends(where, "target", "read_uncommitted")
        return f"copied {copied}; target: stable {stable}, end {high}"

    def _wait_until_no_transaction_is_open(self) -> None:
        """Wait until the last stable offset equals the high watermark."""
        where = self._brokers.bootstrap
        until_s = time.monotonic() + _END_S
        while True:
            stable = ends(where, "target", "read_committed")
            high = ends(where, "target", "read_uncommitted")
            if stable == high:
                return
            if time.monotonic() > until_s:
                raise FaultError(f"a transaction is left open: {stable} of {high}")
            time.sleep(0.5)


def exactly_once(name: str, count: int, cycles: int, seed: int, at: Path) -> str:
    """Run a client by its name against ``count`` brokers; return a summary.

    :raises MissingError: if the client's program cannot run here.
    :raises FaultError: if exactly once did not hold.
    """
    with ExitStack() as stack:
        client = CLIENTS[name](at)
        return Run(client, BROKERS[count](at, stack), at, seed).go(cycles)


def main() -> None:
    """Run the chosen clients; exit with a status of 1 after a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=[*CLIENTS])
    parser.add_argument(
        "--brokers", nargs="+", type=int, choices=BROKERS, default=[*BROKERS]
    )
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    is_faulty = False
    for name in chosen.clients:
        for count in chosen.brokers:
            began_s = time.monotonic()
            at = Path(tempfile.mkdtemp(prefix="exactly-once-"))
            try:
                found = exactly_once(name, count, chosen.cycles, chosen.seed, at)
            except MissingError as missing:
                found = f"skipped: {missing}"
            except FaultError as fault:
                found, is_faulty = f"FAULT, files in {at}: {fault}", True
            else:
                shutil.rmtree(at)
            print(
                f"{name}, {count} brokers, seed {chosen.seed}, {chosen.cycles} cycles, "
                f"{time.monotonic() - began_s:.0f} s: {found}",
                flush=True,
            )
    sys.exit(is_faulty)


if __name__ == "__main__":
    main()
