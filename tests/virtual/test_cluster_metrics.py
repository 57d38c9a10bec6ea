"""Replica metrics of a cluster's brokers, under Kafka's own names."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
import trio

from broker.cluster.replica_metrics import quota_metrics, replica_metrics
from broker.observation.metric import Metric
from broker.replication.replication_metrics import replica_fetcher_metrics
from tests.virtual.members import Members, in_sync, numbers, send, with_members

MANAGER: Final = "kafka_server_replicamanager_"
PARTITION: Final = "kafka_cluster_partition_"


def told(members: Members) -> Counter[str]:
    """Return the sums of all live brokers' metrics over all labels."""
    sums: Counter[str] = Counter()
    for number in members.alive:
        broker = members.broker(number)
        samples: list[Metric | None] = [
            *replica_metrics(broker.replicas),
            *quota_metrics(broker.quotas),
            *replica_fetcher_metrics(broker.replication.fetchers),
        ]
        for each in filter(None, samples):
            sums[each.name] += int(each.value)
    return sums


def test_replicas_that_are_away_are_missed_by_leaders_alone() -> None:
    async def scenario(members: Members) -> None:
        # The three partitions have a leader each; two replicas must be in sync.
        await members.create("t", 3, configs=[("min.insync.replicas", "2")])
        await in_sync(members)
        before = told(members)
        assert before[MANAGER + "leadercount"] == 3
        assert before[MANAGER + "partitioncount"] == 9
        assert before[PARTITION + "insyncreplicascount"] == 9
        assert before[PARTITION + "replicascount"] == 9
        for name in ("underreplicated", "underminisr", "atminisr"):
            assert before[PARTITION + name] == 0, name
        await members.kill(members.alive[-1])
        await members.until(lambda: told(members)[MANAGER + "leadercount"] == 3)
        await members.until(
            lambda: told(members)[MANAGER + "underreplicatedpartitions"] == 3
        )
        one_away = told(members)
        assert one_away[PARTITION + "underreplicated"] == 3
        assert one_away[PARTITION + "insyncreplicascount"] == 6
        assert one_away[PARTITION + "atminisr"] == 3
        assert one_away[MANAGER + "atminisrpartitioncount"] == 3
        assert one_away[MANAGER + "underminisrpartitioncount"] == 0
        await members.kill(members.alive[-1])
        await members.until(
            lambda: told(members)[MANAGER + "underminisrpartitioncount"] == 3
        )
        assert told(members)[PARTITION + "underminisr"] == 3

    with_members(scenario)


def test_bytes_sent_to_followers_are_the_bytes_received() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await in_sync(members)
        async with members.producer(acks="all") as producer:
            await send(producer, numbers(0, 100))
        size = members.partition(0, "t").log.size_bytes
        moved = "kafka_server_brokertopicmetrics_replicationbytes"
        assert told(members)[moved + "in"] == 2 * size
        assert told(members)[moved + "out"] == 2 * size
        # No replication was throttled.
        assert told(members)["kafka_server_leaderreplication_byte_rate"] == 0
        assert told(members)["kafka_server_fetcherlagmetrics_consumerlag"] == 0
        # Followers fetch only the records that they append.
        assert told(members)["kafka_server_fetcherstats_bytes"] == 2 * size

    with_members(scenario)


def test_fetchers_are_counted_and_measured() -> None:
    async def scenario(members: Members) -> None:
        await members.create("t")
        await in_sync(members)
        await trio.sleep(300)
        before = samples(members, 1)
        await trio.sleep(60)
        (fetcher,) = members.broker(1).replication.fetchers.fetchers().values()
        told_of = samples(members, 1)
        name = "kafka_server_fetcherstats_requests"
        (requests,) = (it for it in told_of if it.name == name)
        assert requests.labels == {
            "clientid": "ReplicaFetcherThread-0-0",
            "brokerhost": "127.0.0.1",
            "brokerport": "9092",
        }
        # An idle follower sends a fetch every replica.fetch.wait.max.ms.
        grown = requests.value - next(it.value for it in before if it.name == name)
        manager = "kafka_server_replicafetchermanager_"
        gauges = {it.name: it.value for it in told_of if it.name.startswith(manager)}
        assert gauges[manager + "minfetchrate"] == pytest.approx(grown / 60, rel=0.05)
        assert gauges[manager + "deadthreadcount"] == 0
        assert gauges[manager + "failedpartitionscount"] == 0
        assert fetcher.requests == requests.value

    # Few requests during the minutes in which a rate settles.
    with_members(
        scenario, replica_fetch_wait_max_ms="2000", replica_lag_time_max_ms="10000"
    )


def samples(members: Members, number: int) -> list[Metric]:
    """Return one broker's metrics of its fetchers."""
    fetchers = members.broker(number).replication.fetchers
    return [it for it in replica_fetcher_metrics(fetchers) if it is not None]
