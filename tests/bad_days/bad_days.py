"""`make bad-days`: a live cluster under all kinds of faults, without loss of records.

Three brokers, idempotent producers and a consumer group of two. Leaders, the controller
and ZooKeeper are killed and restarted. Brokers are frozen for longer than their
session, or isolated. After each fault the cluster must recover by itself. At the end,
the checkers of simulated clusters judge the history of all clients.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Final

from simulation.checkers import check
from simulation.histories import History
from tests.bad_days.live_cluster import BROKERS, PARTITIONS, SESSION_MS, LiveCluster
from tests.bad_days.recording_clients import (
    RecordingMember,
    RecordingProducer,
    note_the_end,
)

_PRODUCERS: Final = 2
_MEMBERS: Final = 2
_WHOLE_S: Final = 90.0
_LOOK_S: Final = 0.25
_CALM_S: Final = 2.0
# Longest time without a leader for the clients of a partition: the session expires at a
# tick of a server, and five seconds of margin.
_TICK_S: Final = 2.0
GAP_S: Final = SESSION_MS / 1000 + _TICK_S + 5.0
# Longer than the session time-out.
_AWAY_S: Final = SESSION_MS / 1000 + _TICK_S + 2.0


class BadDays:
    """A cluster, its clients, and faults drawn from a seed."""

    def __init__(
        self, cluster: LiveCluster, seed: int, strikes: Sequence[Strike]
    ) -> None:
        self.cluster = cluster
        self._strikes = strikes
        self.history = History()
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self._seed = seed
        self._rng = random.Random(seed)
        # Name, start and end of each injected fault.
        self._blows: list[tuple[str, int, int]] = []

    def run(self, seconds: float) -> None:
        """Run clients, inject faults repeatedly, and record the final logs."""
        where, history = self.cluster.bootstrap, self.history
        self._until_whole("at the beginning")
        producers = [
            RecordingProducer(where, history, f"p{number}", self._seed)
            for number in range(_PRODUCERS)
        ]
        members = [
            RecordingMember(where, history, f"m{number}") for number in range(_MEMBERS)
        ]
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s and not self.faults:
            for strike in self._rng.sample(self._strikes, len(self._strikes)):
                self._strike(strike)
        for producer in producers:
            producer.stop(_WHOLE_S)
            self.faults += producer.errors
        for member in members:
            member.stop()
            self.faults += member.errors
        note_the_end(where, history, _WHOLE_S)
        self.faults += map(str, check(history))
        self.faults += self._long_gaps()

    # ---- faults ---------------------------------------------------------------------

    def _strike(self, strike: Strike) -> None:
        name = strike.__name__.strip("_")
        began_ns = time.monotonic_ns()
        strike(self)
        self._until_whole(f"after {name}")
        self._blows.append((name, began_ns, time.monotonic_ns()))
        self.done[name] += 1
        print(f"{name}: {(time.monotonic_ns() - began_ns) / 1e9:.1f} s", flush=True)
        time.sleep(_CALM_S)

    def _leader_is_killed(self) -> None:
        leader = self.cluster.leader(self._rng.randrange(PARTITIONS))
        self._kill(leader)

    def _controller_is_killed(self) -> None:
        self._kill(self.cluster.controller())

    def _zookeeper_is_killed(self) -> None:
        self.cluster.stop_zookeeper()
        time.sleep(self._rng.uniform(0.5, _AWAY_S))
        self.cluster.start_zookeeper()

    def _broker_stands_still(self) -> None:
        broker = self._rng.randrange(BROKERS)
        self.cluster.freeze(broker)
        time.sleep(_AWAY_S)
        self.cluster.thaw(broker)

    def _broker_is_cut_off(self) -> None:
        broker = self._rng.randrange(BROKERS)
        self.cluster.cut_off(broker)
        time.sleep(self._rng.uniform(1.0, _AWAY_S))
        self.cluster.let_back(broker)

    def brokers_restart_one_by_one(self) -> None:
        """Stop and restart each broker in turn, as in a rolling update."""
        for broker in self._rng.sample(range(BROKERS), BROKERS):
            self.cluster.brokers[broker].stop()
            self.cluster.brokers[broker].start()
            self._until_whole(f"after a restart of {broker}")
            time.sleep(_CALM_S)

    def _kill(self, broker: int) -> None:
        self.cluster.brokers[broker].kill()
        time.sleep(self._rng.uniform(0.0, _AWAY_S))
        self.cluster.brokers[broker].start()

    # ---- invariants -----------------------------------------------------------------

    def _until_whole(self, when: str) -> None:
        until_s = time.monotonic() + _WHOLE_S
        while not self.cluster.is_whole():
            if time.monotonic() > until_s:
                self.faults.append(f"not whole {_WHOLE_S:.0f} s {when}")
                return
            time.sleep(_LOOK_S)

    def _long_gaps(self) -> list[str]:
        """Find partitions without acknowledged writes for longer than `GAP_S`."""
        answered: dict[int, list[int]] = defaultdict(list)
        for send in self.history.sends:
            if send.outcome == "ok":
                answered[send.partition.partition].append(send.answered_ns)
        gaps = []
        for name, began_ns, ended_ns in self._blows:
            for partition, times in answered.items():
                times.sort()
                inside = times[bisect(times, began_ns) : bisect(times, ended_ns)]
                ends = [began_ns, *inside, ended_ns]
                gap_s = max(b - a for a, b in pairwise(ends)) / 1e9
                if gap_s > GAP_S:
                    gaps.append(f"{name}: {partition} was away for {gap_s:.1f} s")
        return gaps


Strike = Callable[[BadDays], None]
STRIKES: Final[Sequence[Strike]] = (
    BadDays._leader_is_killed,
    BadDays._controller_is_killed,
    BadDays._zookeeper_is_killed,
    BadDays._broker_stands_still,
    BadDays._broker_is_cut_off,
)


def bad_days(
    directory: Path, seconds: float, seed: int, strikes: Sequence[Strike] = STRIKES
) -> list[str]:
    """Run bad days; print the faults injected, and return the failures."""
    with ExitStack() as stack:
        cluster = LiveCluster(directory, stack)
        cluster.create_topic()
        days = BadDays(cluster, seed, strikes)
        days.run(seconds)
        sends = len(days.history.sends)
        print(f"seed {seed}: {sends} records, {dict(days.done)}")
        for fault in days.faults:
            print(f"  {fault}")
    return days.faults


def main() -> None:
    """Run bad days for the chosen time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        faults = bad_days(Path(directory), chosen.minutes * 60, chosen.seed)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
