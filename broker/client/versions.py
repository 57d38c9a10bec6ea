"""Versions of each API that this client supports, and the negotiated ones."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError, MalformedFrame
from broker.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from broker.protocol.wire.codec import decode_response

Versions: TypeAlias = Mapping[ApiKey, tuple[int, int]]
SPOKEN: Final[Versions] = MappingProxyType(
    {
        ApiKey.PRODUCE: (3, 12),
        ApiKey.FETCH: (4, 12),
        ApiKey.LIST_OFFSETS: (1, 7),
        ApiKey.METADATA: (4, 12),
        ApiKey.OFFSET_COMMIT: (5, 9),
        ApiKey.OFFSET_FETCH: (1, 9),
        ApiKey.FIND_COORDINATOR: (1, 3),
        ApiKey.JOIN_GROUP: (2, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (3, 5),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        ApiKey.API_VERSIONS: (0, 3),
        ApiKey.INIT_PRODUCER_ID: (0, 4),
        # Later versions are for brokers.
        ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
        ApiKey.END_TXN: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (3, 5),
        ApiKey.LEADER_AND_ISR: (2, 7),
        ApiKey.STOP_REPLICA: (3, 4),
        ApiKey.UPDATE_METADATA: (5, 8),
        ApiKey.CONTROLLED_SHUTDOWN: (2, 3),
        ApiKey.ALTER_PARTITION: (2, 2),
    }
)
# Brokers send each other requests that clients do not send.
SPOKEN_BETWEEN_BROKERS: Final[Versions] = MappingProxyType(
    {
        **SPOKEN,
        # Versions that verify partitions (KIP-890).
        ApiKey.ADD_PARTITIONS_TO_TXN: (4, 5),
        ApiKey.WRITE_TXN_MARKERS: (1, 2),
    }
)
SPOKEN_BY_ADMINS: Final[Versions] = MappingProxyType(
    {
        **SPOKEN,
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
        ApiKey.DESCRIBE_QUORUM: (0, 2),
        ApiKey.DESCRIBE_CLUSTER: (0, 2),
        # Since v4 a request may leave the numbers of partitions and replicas open.
        ApiKey.CREATE_TOPICS: (4, 7),
        ApiKey.DELETE_TOPICS: (1, 5),
        ApiKey.CREATE_PARTITIONS: (0, 3),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
        # v0 has no unclean election.
        ApiKey.ELECT_LEADERS: (1, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    }
)
# Upper bounds of versions in the first protocol of transactions (KIP-890).
FIRST_PROTOCOL: Final[Mapping[ApiKey, int]] = MappingProxyType(
    {ApiKey.PRODUCE: 11, ApiKey.END_TXN: 4, ApiKey.TXN_OFFSET_COMMIT: 4}
)
NO_LIMITS: Final[Mapping[ApiKey, int]] = MappingProxyType({})
TRANSACTION_VERSION: Final = "transaction.version"
HANDSHAKE: Final = ApiVersionsRequest(
    client_software_name="doorkeeper", client_software_version="0.1.0"
)
_ERROR_AT: Final = slice(4, 6)


class FinalizedFeatures(NamedTuple):
    """The cluster's finalized features by name; epoch -1: unknown."""

    epoch: int = -1
    levels: Mapping[str, int] = MappingProxyType({})


def finalized_features(answer: ApiVersionsResponse) -> FinalizedFeatures:
    """Return the features that a broker reports as finalized."""
    levels = {it.name: it.max_version_level for it in answer.finalized_features}
    return FinalizedFeatures(answer.finalized_features_epoch, levels)


def chosen_versions(
    answer: ApiVersionsResponse, spoken: Versions = SPOKEN
) -> dict[ApiKey, int]:
    """Return the newest version of each API that both sides support."""
    offered = {each.api_key: each for each in answer.api_keys}
    chosen = {}
    for key, (low, high) in spoken.items():
        theirs = offered.get(key)
        if theirs is not None:
            newest = min(high, theirs.max_version)
            if newest >= max(low, theirs.min_version):
                chosen[key] = newest
    return chosen


def decode_handshake(
    version: int, frame: bytes
) -> tuple[int, ApiVersionsResponse | None]:
    """Return correlation id and ApiVersions response; None: unsupported version.

    Raises `MalformedFrame`, and `KafkaError` for any other error.
    """
    if len(frame) < _ERROR_AT.stop:
        raise MalformedFrame(f"ApiVersions answer of {len(frame)} bytes")
    # For an unsupported version the body is in version 0: only the code is read.
    code = int.from_bytes(frame[_ERROR_AT], "big", signed=True)
    if code == ErrorCode.unsupported_version.value and version > 0:
        return int.from_bytes(frame[:4], "big", signed=True), None
    answer: ApiVersionsResponse
    correlation_id, answer = decode_response(ApiKey.API_VERSIONS, version, frame)
    if answer.error_code is not ErrorCode.none:
        raise KafkaError(answer.error_code, "the broker refuses ApiVersions")
    return correlation_id, answer
