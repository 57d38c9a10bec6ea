"""The producer's two transaction protocols (KIP-890), by transaction.version."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from broker.client.connection import Body, Connection, Done
from broker.client.consumer.consumer_commits import GroupMetadata
from broker.client.producer.producer import KafkaProducer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.message import AnyRequest
from broker.protocol.topic_partition import TopicPartition
from tests.client.cluster import Cluster, in_cluster
from tests.seeds import seeds

T0 = TopicPartition("t", 0)
every_version = pytest.mark.parametrize("version", [0, 1, 2])


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[ApiKey, int]]:
    """Return a count of the clients' requests, by API and version."""
    found: Counter[tuple[ApiKey, int]] = Counter()
    send = Connection._send

    def counting(
        self: Connection,
        request: AnyRequest[Any],
        version: int,
        timeout_s: float,
        done: Done[Any],
        body: Body | None = None,
    ) -> None:
        found[request.api_key, version] += 1
        send(self, request, version, timeout_s, done, body)

    monkeypatch.setattr(Connection, "_send", counting)
    return found


async def finalize(cluster: Cluster, level: int) -> None:
    """Lower ``transaction.version``; a new cluster has its newest level."""
    row = {
        "feature": "transaction.version",
        "max_version_level": level,
        "upgrade_type": 2,
    }
    answer = await cluster.ask(
        ApiKey.UPDATE_FEATURES,
        1,
        timeout=timedelta(seconds=5),
        feature_updates=[row],
        validate_only=False,
    )
    assert answer.error_code is ErrorCode.none


async def epoch(cluster: Cluster) -> int:
    """Return the epoch of the transactional id ``tx``."""
    answer = await cluster.ask(
        ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["tx"]
    )
    (state,) = answer.transaction_states
    return int(state.producer_epoch)


async def transact(producer: KafkaProducer, *, commits: bool) -> None:
    """Run a transaction with a record in both partitions, and an offset."""
    await producer.begin_transaction()
    for partition in range(2):
        await (await producer.send("t", b"x", partition=partition)).wait()
    await producer.send_offsets_to_transaction({T0: 1}, GroupMetadata("g"))
    if commits:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()


@every_version
def test_the_protocol_follows_the_finalized_version(
    version: int, sent: Counter[tuple[ApiKey, int]]
) -> None:
    """Epochs match Kafka's coordinator: from version 2 on, one per transaction."""

    async def scenario(cluster: Cluster) -> int:
        await cluster.create("t", 2)
        await finalize(cluster, version)
        async with cluster.producer(transactional_id="tx") as producer:
            await producer.init_transactions()
            for commits in (True, False, True):
                await transact(producer, commits=commits)
        return await epoch(cluster)

    raised = in_cluster(scenario)
    versions = {key: {it for name, it in sent if name is key} for key, _ in sent}
    if version < 2:
        assert raised == 0
        assert versions[ApiKey.PRODUCE] == {11}
        assert versions[ApiKey.TXN_OFFSET_COMMIT] == {4}
        assert versions[ApiKey.END_TXN] == {4}
        assert sent[ApiKey.ADD_OFFSETS_TO_TXN, 4] >= 3
        assert sent[ApiKey.ADD_PARTITIONS_TO_TXN, 3] >= 3
    else:
        assert raised == 3
        assert versions[ApiKey.PRODUCE] == {12}
        assert versions[ApiKey.TXN_OFFSET_COMMIT] == {5}
        assert versions[ApiKey.END_TXN] == {5}
        assert ApiKey.ADD_OFFSETS_TO_TXN not in versions
        assert ApiKey.ADD_PARTITIONS_TO_TXN not in versions


def test_an_upgrade_counts_from_the_next_transaction_on(
    sent: Counter[tuple[ApiKey, int]],
) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.create("t", 2)
        async with cluster.producer(transactional_id="tx") as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await finalize(cluster, 0)
            cluster.cut_all()
            for partition in range(2):
                await (await producer.send("t", b"x", partition=partition)).wait()
            await producer.commit_transaction()
            assert not sent[ApiKey.END_TXN, 4]
            await transact(producer, commits=True)
            assert sent[ApiKey.END_TXN, 4]

    in_cluster(scenario)


@every_version
def test_what_was_aborted_is_not_read(version: int) -> None:
    async def scenario(cluster: Cluster) -> list[bytes]:
        await cluster.create("t", 1)
        await finalize(cluster, version)
        async with cluster.producer(transactional_id="tx", linger_ms=0) as producer:
            await producer.init_transactions()
            for number in range(20):
                await producer.begin_transaction()
                receipt = await producer.send("t", b"%d" % number)
                if number % 3:
                    await producer.commit_transaction()
                else:
                    await receipt.wait()
                    await producer.abort_transaction()
        found: list[bytes] = []
        async with cluster.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([T0])
            while len(found) < 13:
                found += [each.value for each in await consumer.poll()]
        return found

    assert in_cluster(scenario) == [b"%d" % it for it in range(20) if it % 3]


@pytest.mark.parametrize("seed", seeds(4, 8))
@every_version
def test_a_lost_answer_repeats_nothing(version: int, seed: int) -> None:
    """After any break, a repeated EndTxn receives the response of the first one."""
    count = 25

    async def scenario(cluster: Cluster) -> tuple[list[bytes], int]:
        await cluster.create("t", 1)
        await finalize(cluster, version)
        cluster.draw_budget = lambda: cluster.rng.randrange(700, 3_000)
        async with cluster.producer(
            transactional_id="tx", retry_backoff_ms=5, reconnect_backoff_ms=5
        ) as producer:
            await producer.init_transactions()
            for number in range(count):
                async with producer.transaction():
                    await producer.send("t", b"%d" % number)
        cluster.draw_budget = lambda: None
        found: list[bytes] = []
        async with cluster.consumer(isolation_level="read_committed") as consumer:
            consumer.assign([T0])
            while len(found) < count:
                found += [each.value for each in await consumer.poll()]
            found += [each.value for each in await consumer.poll(timeout_s=1)]
        return found, cluster.cuts

    found, cuts = in_cluster(scenario, seed=seed)
    assert cuts > 1
    assert found == [b"%d" % it for it in range(count)]


@every_version
def test_the_next_producer_of_an_id_fences_the_last(version: int) -> None:
    async def scenario(cluster: Cluster) -> ErrorCode:
        await cluster.create("t", 1)
        await finalize(cluster, version)
        async with (
            cluster.producer(transactional_id="tx") as first,
            cluster.producer(transactional_id="tx") as second,
        ):
            await first.init_transactions()
            await first.begin_transaction()
            await (await first.send("t", b"zombie")).wait()
            await second.init_transactions()
            with pytest.raises(KafkaError) as fenced:
                await first.commit_transaction()
        return fenced.value.code

    assert in_cluster(scenario) is ErrorCode.producer_fenced
