"""A bad day as a value: a cluster, its load, and the faults that befall it.

Everything is drawn from one seed before anything runs, so that a scenario can be
printed, and replayed without some of its faults. Which choices there are is drawn too
(a swarm: some days have no fault of a kind at all), since what always happens hides
what happens only in its absence.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedulers.registry import POLICIES
from simulation.clients.producing import ProducerPlan

# Faults of brokers' hosts, of links, of disks, of control, of clients.
KINDS: Final = (
    "kill",
    "bounce",
    "power",
    "isolate",
    "deafen",
    "cut",
    "slow",
    "stall",
    "full",
    "device",
    "prefer",
    "fail-over",
    "producer",
    "member",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something bad at one moment, for a while; ``broker`` is whom it meets.

    ``chance`` settles what the kind leaves open, whatever the faults before it did.
    """

    number: int
    at_ms: int
    kind: str
    broker: int
    lasts_ms: int
    chance: int

    def __str__(self) -> str:
        until = self.at_ms + self.lasts_ms
        return f"{self.number}: {self.kind} {self.broker}, {self.at_ms} to {until} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One bad day; ``settings`` are those of all brokers."""

    seed: int
    brokers: int
    partitions: int
    replicas: int
    min_insync: int
    offsets_partitions: int
    flushes: bool
    session_timeout_ms: int
    repeats: float
    clock_skew_ms: int
    settings: Mapping[str, str]
    producers: tuple[ProducerPlan, ...]
    readers: int
    members: int
    lasts_ms: int
    faults: tuple[Fault, ...]
    # Brokers under a ZooKeeper, one of them their controller, instead of a script.
    zookeeper: bool = False


def draw(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    rng = random.Random(seed)
    brokers = rng.choice((1, 2, 3, 3, 3, 4, 5))
    replicas = min(brokers, rng.choice((1, 2, 3, 3)))
    lasts_ms = rng.randrange(6_000, 16_000)
    return Scenario(
        seed=seed,
        brokers=brokers,
        partitions=rng.randint(1, 3),
        replicas=replicas,
        min_insync=rng.randint(1, max(1, replicas - 1)),
        offsets_partitions=rng.randint(1, 2),
        flushes=rng.random() < 0.3,
        session_timeout_ms=rng.choice((500, 1500, 4000)),
        repeats=rng.choice((0.0, 0.2, 0.5)),
        clock_skew_ms=rng.choice((0, 0, 200, 60_000)),
        settings=_settings(rng),
        producers=tuple(_producer(rng) for _ in range(rng.randint(1, 3))),
        readers=rng.randint(0, 1),
        members=rng.randint(0, 2),
        lasts_ms=lasts_ms,
        faults=_faults(rng, brokers, lasts_ms),
    )


def _settings(rng: random.Random) -> dict[str, str]:
    return {
        "doorkeeper.scheduler": rng.choice(("fifo", "wfq", rng.choice([*POLICIES]))),
        "replica.lag.time.max.ms": str(rng.choice((800, 2000, 6000))),
        "replica.fetch.wait.max.ms": str(rng.choice((100, 500))),
        "replica.fetch.backoff.ms": str(rng.choice((50, 500))),
        "replica.fetch.max.bytes": str(rng.choice((200, 1 << 20))),
        "log.flush.offset.checkpoint.interval.ms": str(rng.choice((300, 5000))),
        "num.replica.fetchers": str(rng.randint(1, 2)),
        "log.segment.bytes": str(rng.choice((1000, 1 << 30))),
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 500))),
    }


def _producer(rng: random.Random) -> ProducerPlan:
    acks = rng.choice((-1, -1, 1))
    return ProducerPlan(
        acks=acks,
        idempotent=acks == -1 and rng.random() < 0.7,
        linger_ms=rng.choice((0, 5, 50)),
        pause_ms=rng.choice((20, 60, 200)),
    )


def _faults(rng: random.Random, brokers: int, lasts_ms: int) -> tuple[Fault, ...]:
    kinds = rng.sample(KINDS, rng.randint(1, 6))
    moments = sorted(rng.randrange(lasts_ms) for _ in range(rng.randint(0, 12)))
    return tuple(
        Fault(
            number=number,
            at_ms=at_ms,
            kind=rng.choice(kinds),
            broker=rng.randrange(brokers),
            lasts_ms=rng.choice((50, 500, 2000, 5000)),
            chance=rng.getrandbits(32),
        )
        for number, at_ms in enumerate(moments)
    )
