"""TLS and transactions against Apache Kafka, and the cost of authorization.

- Bytes and requests over TLS 1.3, against Kafka with the same certificate.
- Transactions of librdkafka's producers on plain listeners, against Kafka.
- CPU time per Produce request of a broker with an authorizer and `ENTRIES` access
  control lists, against a broker without one. Both run at the same time, and each round
  gives a difference. The bound of the difference is `BOUND_US`.

In the last part an entry with a prefix allows the client to write the topic. The broker
caches the decision after the first request, as for every client.

``python -m bench security`` runs these rows alone, in about seven minutes.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from bench import certificates, clients
from bench.beside import (
    KAFKA,
    OURS,
    Measure,
    Samples,
    measure_round,
    peer_rows,
    volume_measures,
    warm_up_volumes,
)
from bench.brokers import (
    KAFKA_VERSION,
    Running,
    directory,
    doorkeeper,
    kafka,
    on_the_load_cpu,
)
from bench.row import BenchRow, paired
from bench.small_requests import TOPIC, closed_loop, saturated
from broker.authorization.acls import (
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from broker.protocol.principal import ANONYMOUS
from broker.protocol.wire.codec import decode_response, encode_request
from experiments.worlds.kafka.apache_kafka import NoKafka

ENTRIES: Final = 1_000
BOUND_US: Final = 3.0
# A smaller cost is reported as this value.
_RESOLUTION_US: Final = 0.01
_ROUNDS, _PAIRS = 5, 31
_CONNECTIONS: Final = 16
_SECONDS, _PAIR_SECONDS = 1.5, 0.4
# A JVM takes about half a minute of load to settle.
_WARM_UP_SECONDS: Final = {KAFKA: 30.0, OURS: 1.0}
_WARM_UP_TRANSACTIONS: Final = {KAFKA: 10, OURS: 1}
_VOLUMES: Final = {100: 600_000, 1_000: 150_000}
_PRODUCERS, _TRANSACTIONS = 8, 50
_TRANSACTIONS_TOPIC: Final = "transactions"
_GUARDED: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
}


def rows() -> Iterator[BenchRow]:
    """Compare with Apache Kafka, if installed, and with a broker without authorizer."""
    yield from _authorization()
    try:
        with directory() as stores:
            certificates.write_stores(stores)
            yield from _against_kafka(list(_measures_of_tls()), _warm_up_tls, stores)
        yield from _against_kafka([_transactions(_TRANSACTIONS)], _warm_up_transactions)
    except NoKafka as none:
        print(f"left out: {none}", file=sys.stderr)


# ---- against Kafka ------------------------------------------------------------------


def _against_kafka(
    measures: Sequence[Measure],
    warm_up: Callable[[Running], None],
    stores: Path | None = None,
) -> Iterator[BenchRow]:
    samples: Samples = defaultdict(lambda: defaultdict(list))
    with ExitStack() as stack:
        theirs = stack.enter_context(kafka(stores=stores))
        running = [stack.enter_context(doorkeeper(stores=stores)), theirs]
        stack.enter_context(on_the_load_cpu())
        for broker in running:
            warm_up(broker)
            broker.pin()
        for number in range(_ROUNDS):
            measure_round(number, running, measures, samples)
    yield from peer_rows(KAFKA, f"Apache Kafka {KAFKA_VERSION}", samples)


def _warm_up_tls(broker: Running) -> None:
    clients.create_topic(broker, TOPIC)
    closed_loop(broker, _CONNECTIONS, _WARM_UP_SECONDS[broker.name])
    warm_up_volumes(broker, _VOLUMES)


def _measures_of_tls() -> Iterator[Measure]:
    yield Measure(
        name=f"PRODUCE of one record over TLS, acks=1, {_CONNECTIONS} connections",
        units=("requests/s", "requests/CPU s"),
        take=partial(closed_loop, connections=_CONNECTIONS, seconds=_SECONDS),
    )
    yield from volume_measures(_VOLUMES, over=" over TLS")


def _warm_up_transactions(broker: Running) -> None:
    clients.create_topic(broker, _TRANSACTIONS_TOPIC)
    times = _WARM_UP_TRANSACTIONS[broker.name]
    _transactions(times * _TRANSACTIONS).take(broker)


def _transactions(count: int) -> Measure:
    return Measure(
        name=f"transactions of one record, {_PRODUCERS} producers of librdkafka",
        units=("transactions/s", "transactions/CPU s"),
        take=partial(
            clients.transact,
            topic=_TRANSACTIONS_TOPIC,
            producers=_PRODUCERS,
            transactions=count,
        ),
    )


# ---- authorization ------------------------------------------------------------------


def _authorization() -> Iterator[BenchRow]:
    with ExitStack() as stack:
        data = stack.enter_context(directory())
        super_user = {"super.users": str(ANONYMOUS)}
        with doorkeeper(data, settings={**_GUARDED, **super_user}) as broker:
            clients.create_topic(broker, TOPIC)
            _create_entries(broker)
        brokers = [
            stack.enter_context(doorkeeper(data, settings=_GUARDED)),
            stack.enter_context(doorkeeper()),
        ]
        stack.enter_context(on_the_load_cpu())
        clients.create_topic(brokers[1], TOPIC)
        for broker in brokers:
            closed_loop(broker, _CONNECTIONS, 2 * _WARM_UP_SECONDS[OURS])
            broker.pin()
        guarded, plain = _pairs_us(brokers)
    name = "CPU time of a PRODUCE of one record"
    yield paired(
        f"{name}, with {ENTRIES} ACLs",
        "us",
        guarded,
        "the same broker, without authorizer",
        plain,
        more_is_better=False,
    )
    added = statistics.median(a - b for a, b in zip(guarded, plain, strict=True))
    yield BenchRow(
        name=f"{name}, added by authorization",
        unit="us",
        ours=added,
        peer="the stated bound",
        theirs=BOUND_US,
        ratio=BOUND_US / max(added, _RESOLUTION_US),
    )


def _pairs_us(brokers: Sequence[Running]) -> tuple[list[float], list[float]]:
    """Return the CPU time per request of both brokers in each round."""
    found: tuple[list[float], list[float]] = ([], [])
    for number in range(_PAIRS):
        for which in (0, 1) if number % 2 else (1, 0):
            _, per_cpu_s = saturated(brokers[which], _CONNECTIONS, _PAIR_SECONDS)
            found[which].append(1e6 / per_cpu_s)
    return found


def _create_entries(broker: Running) -> None:
    """Create the entry that allows the load to write, and entries of other users."""

    def entry(name: str, pattern: PatternType, principal: str) -> AclCreation:
        return AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=principal,
            host="*",
            operation=AclOperation.WRITE,
            permission_type=PermissionType.ALLOW,
        )

    others = [
        entry(f"team-{number}", pattern, f"User:user-{number}")
        for number in range(ENTRIES // 2)
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
    ]
    prefix = entry(TOPIC[:3], PatternType.PREFIXED, str(ANONYMOUS))
    body = CreateAclsRequest(creations=[*others[1:], prefix])
    key, version = ApiKey.CREATE_ACLS, 3
    with broker.connect() as client, client.makefile("rb") as answers:
        client.sendall(encode_request(key, version, 0, "bench", body))
        size = int.from_bytes(answers.read(4))
        _, answer = decode_response(key, version, answers.read(size))
    errors = {each.error_code for each in answer.results}
    assert errors == {ErrorCode.none}, errors
