"""The real broker in a virtual `World`, and requests to it."""

from __future__ import annotations

import random
from typing import Any

from broker.config import BrokerConfig
from broker.handling.kafka_apis import KafkaApis
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import decode_response, encode_request, request_type
from simulation.virtual_time.apis import kafka_apis, receive_frame
from simulation.virtual_time.determinism import VirtualClock
from simulation.virtual_time.memory_network import MemoryNetwork, MemoryStream
from tests.broker.apis.requests import SECONDS_30, entity, fetch_fields, new_topic

PARTITIONS = 20
SETTINGS = {
    "log.dirs": "/data",
    "offsets.topic.num.partitions": "2",
    # The sockets are polled after every slice.
    "doorkeeper.quantum.us": "50",
}


def kafka(
    config: BrokerConfig, clock: VirtualClock, network: MemoryNetwork
) -> KafkaApis:
    """Make the application of a `World`: Kafka's APIs over an empty disk."""
    return kafka_apis(config, clock, random.Random(5), network)


async def ask(
    stream: MemoryStream,
    key: ApiKey,
    version: int,
    correlation_id: int = -1,
    **fields: Any,
) -> Any:
    """Send a request and return its decoded response."""
    await ask_nothing(stream, key, version, correlation_id, **fields)
    return await answer(stream, key, version)


async def ask_nothing(
    stream: MemoryStream,
    key: ApiKey,
    version: int,
    correlation_id: int = -1,
    **fields: Any,
) -> None:
    """Send a request and leave its response in the socket."""
    body = entity(request_type(key, version), fields)
    await stream.send_all(encode_request(key, version, correlation_id, "test", body))


async def answer(stream: MemoryStream, key: ApiKey, version: int) -> Any:
    """Return the next response, decoded."""
    return decode_response(key, version, await receive_frame(stream))[1]


async def create_topic(stream: MemoryStream, partitions: int = PARTITIONS) -> None:
    """Create the topic ``t``."""
    created = await ask(
        stream,
        ApiKey.CREATE_TOPICS,
        5,
        topics=[new_topic("t", partitions)],
        timeout=SECONDS_30,
    )
    assert created.topics[0].error_code is ErrorCode.none


async def fetch_all(
    stream: MemoryStream, partitions: int = PARTITIONS
) -> dict[int, Any]:
    """Return the records of each partition of ``t`` as stored in the log."""
    offsets = {("t", index): 0 for index in range(partitions)}
    fetched = await ask(stream, ApiKey.FETCH, 11, **fetch_fields(offsets))
    return {
        each.partition_index: each.records for each in fetched.responses[0].partitions
    }
