"""A bad day as a value: a cluster, its load, and its faults.

The whole scenario is drawn from one seed before it runs, so it can be printed, and
replayed without some of its faults. The set of possible choices is drawn too (a swarm):
some days have no fault of a certain kind, because a frequent fault hides bugs that
appear only in its absence.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from broker.coordination.features import GROUP_VERSION, TRANSACTION_VERSION
from broker.transactions.transaction import EPOCH_PER_TRANSACTION
from schedulers.registry import POLICIES
from simulation.clients.producing import ProducerPlan
from simulation.clients.transacting import TransactorPlan

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
# Kinds of days with transactions: a producer is killed, another one takes the id of a
# live one, a broker's wall clock jumps.
TRANSACTION_KINDS: Final = (*KINDS, "transactor", "usurp", "clock")
# Separates the random numbers of these days from those of other days of the seed.
_TRANSACTIONS: Final = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault at an instant, for a while; ``broker`` is the affected broker.

    ``chance`` decides the fault's details, independently of earlier faults.
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
class TransactionsPlan:
    """Transactions of a day: levels of features, coordinators' settings, producers.

    ``features`` are the finalized ones. With ``consumer_groups`` the members of groups
    speak the protocol of KIP-848.
    """

    features: Mapping[str, int]
    consumer_groups: bool
    partitions: int
    state_partitions: int
    settings: Mapping[str, str]
    writers: tuple[TransactorPlan, ...]
    copiers: tuple[TransactorPlan, ...]

    @property
    def has_epochs(self) -> bool:
        """Whether every transaction has an epoch of its own."""
        return self.features.get(TRANSACTION_VERSION, 0) >= EPOCH_PER_TRANSACTION


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
    # Whether ZooKeeper and an elected broker replace the scripted controller.
    zookeeper: bool = False
    transactions: TransactionsPlan | None = None


def draw(seed: int, *, zookeeper: bool = False, transactions: bool = False) -> Scenario:
    """Return the scenario of a seed."""
    scenario = replace(_draw(random.Random(seed), seed), zookeeper=zookeeper)
    if not transactions:
        return scenario
    return _with_transactions(scenario, random.Random(seed + _TRANSACTIONS))


def _draw(rng: random.Random, seed: int) -> Scenario:
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
        faults=_faults(rng, brokers, lasts_ms, KINDS),
    )


def _with_transactions(scenario: Scenario, rng: random.Random) -> Scenario:
    # Under ZooKeeper no feature is finalized.
    version = 0 if scenario.zookeeper else rng.choice((0, 1, 2, 2))
    consumer_groups = not scenario.zookeeper and rng.random() < 0.5
    plan = TransactionsPlan(
        features={TRANSACTION_VERSION: version, GROUP_VERSION: int(consumer_groups)},
        consumer_groups=consumer_groups,
        partitions=rng.randint(1, 3),
        state_partitions=rng.randint(1, 3),
        settings={
            # Otherwise idle followers of many partitions would send most requests.
            "replica.fetch.wait.max.ms": "500",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.heartbeat.interval.ms": "500",
            "group.consumer.heartbeat.interval.ms": "1000",
        },
        writers=tuple(
            _transactor(rng, f"writer-{number}") for number in range(rng.randint(1, 2))
        ),
        copiers=tuple(
            _transactor(rng, f"copier-{number}") for number in range(rng.randint(0, 2))
        ),
    )
    return replace(
        scenario,
        # One slow producer: each of its records is copied, in small transactions.
        producers=tuple(
            replace(it, pause_ms=max(it.pause_ms, 100)) for it in scenario.producers[:1]
        ),
        readers=1,
        faults=_faults(rng, scenario.brokers, scenario.lasts_ms, TRANSACTION_KINDS),
        transactions=plan,
    )


def _transactor(rng: random.Random, transactional_id: str) -> TransactorPlan:
    return TransactorPlan(
        transactional_id=transactional_id,
        timeout_ms=rng.choice((1_000, 3_000, 10_000)),
        aborts=rng.choice((0.0, 0.2, 0.5)),
        records=rng.choice((1, 4, 12)),
        pause_ms=rng.choice((50, 200, 800)),
        returns=rng.random() < 0.8,
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


def _faults(
    rng: random.Random, brokers: int, lasts_ms: int, all_kinds: Sequence[str]
) -> tuple[Fault, ...]:
    kinds = rng.sample(all_kinds, rng.randint(1, 6))
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
