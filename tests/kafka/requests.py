"""Requests to both brokers."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Final

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.broker.apis.requests import SECONDS_30, fetch_fields, new_topic
from tests.kafka.peer import Peer

# Last version in Kafka 3.9, for APIs of which Doorkeeper serves later ones.
LAST_IN_3_9: Final = {
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 17,
    ApiKey.LIST_OFFSETS: 9,
    ApiKey.METADATA: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.DESCRIBE_GROUPS: 5,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_CLUSTER: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.LIST_TRANSACTIONS: 1,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.LIST_CONFIG_RESOURCES: 0,
    ApiKey.END_TXN: 4,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    # Kafka 3.9 has no transaction.version to compare.
    ApiKey.UPDATE_FEATURES: -1,
    ApiKey.API_VERSIONS: 4,
    ApiKey.DELETE_GROUPS: 2,
}


def versions(key: ApiKey) -> range:
    """Return the served versions that Kafka 3.9 has, too."""
    served = APIS[key].served
    return range(served.start, LAST_IN_3_9.get(key, served.stop - 1) + 1)


def newer_versions(key: ApiKey) -> range:
    """Return the served versions that Kafka 3.9 lacks."""
    served = APIS[key].served
    return range(LAST_IN_3_9[key] + 1, served.stop)


def create(
    peer: Peer, *topics: dict[str, Any], version: int = 4, **fields: Any
) -> None:
    """Create topics; later versions than 4 also answer with all configs."""
    peer.send(
        ApiKey.CREATE_TOPICS,
        version,
        topics=list(topics),
        **{"timeout": SECONDS_30, **fields},
    )


def topic(peer: Peer, name: str, partitions: int = 1, **configs: str) -> str:
    """Create one topic and return its name."""
    written = [(key.replace("_", "."), value) for key, value in configs.items()]
    create(peer, new_topic(name, partitions, configs=written))
    wait_for_leaders(peer, name, partitions)
    return name


def wait_for_leaders(peer: Peer, name: str, partitions: int) -> None:
    """Wait for the leaders: Kafka answers CreateTopics before it elects them."""
    wanted = {(name, index): 0 for index in range(partitions)}
    while True:
        answer = peer.ask(ApiKey.FETCH, 11, **fetch_fields(wanted))
        rows = [row for topic in answer.responses for row in topic.partitions]
        if {row.error_code for row in rows} == {ErrorCode.none}:
            return
        time.sleep(0.01)


def settle(peer: Peer) -> None:
    """Wait until the broker shows all changes so far.

    Kafka's controller answers first, and its broker applies changes later, in order.
    A visible marker change therefore proves that all earlier changes are visible. A
    second marker proves that the broker has also completed the work for them.
    """
    for sign in ("1000001", "1000002"):
        configs = [{"name": "retention.ms", "config_operation": 0, "value": sign}]
        _ask_of_sign(peer, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, configs=configs)
        keys = ["retention.ms"]
        while True:
            found = _ask_of_sign(
                peer, ApiKey.DESCRIBE_CONFIGS, 4, configuration_keys=keys
            )
            if [config.value for config in found.configs] == [sign]:
                break
            time.sleep(0.01)


def _ask_of_sign(peer: Peer, key: ApiKey, version: int, **fields: Any) -> Any:
    """Send a request about the marker topic; create the topic if it is missing."""
    while True:
        told = {"resource_type": 2, "resource_name": "sign", **fields}
        answer = peer.ask(key, version, resources=[told])
        found = (answer.results if hasattr(answer, "results") else answer.responses)[0]
        if found.error_code is ErrorCode.none:
            return found
        new = new_topic("sign", 1)
        peer.ask(ApiKey.CREATE_TOPICS, 4, topics=[new], timeout=SECONDS_30)
        time.sleep(0.01)


def init_producer_id(peer: Peer) -> Any:
    """Request a producer id; the response is not compared."""
    return peer.ask(
        ApiKey.INIT_PRODUCER_ID,
        4,
        transactional_id=None,
        transaction_timeout=timedelta(seconds=60),
        producer_id=-1,
        producer_epoch=-1,
    )


def topic_id(peer: Peer, name: str) -> Any:
    """Return the id of a topic."""
    answer = peer.send(ApiKey.METADATA, 12, topics=[{"name": name}])
    return answer.topics[0].topic_id
