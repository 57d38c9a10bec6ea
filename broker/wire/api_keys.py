"""Kafka's API keys, and the one table of the versions that this broker speaks.

Names and numbers are those of Kafka's ``ApiKeys``. `SUPPORTED` is what ApiVersions
may advertise; a key is advertised once a handler is registered for it.

Some minimums are lower than what is served, because clients read them as signs of a
broker's age: librdkafka up to 2.11.0 turns gzip, snappy and lz4 off unless Produce
goes down to 0, and its older releases want ListOffsets, OffsetCommit and OffsetFetch
near 0 before they balance consumers (KAFKA-18659 has Kafka 4 do the same). A request
below ``implemented_min`` is answered as one of an unsupported version.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class ApiKey(enum.IntEnum):
    """Kafka's request types."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class VersionRange(NamedTuple):
    """Versions of one API: advertised ``min``..``max``, served from another one on."""

    min: int
    max: int
    implemented_min: int

    def serves(self, version: int) -> bool:
        """Tell whether requests of ``version`` are answered in earnest."""
        return self.implemented_min <= version <= self.max


def _versions(low: int, high: int, *, served_from: int | None = None) -> VersionRange:
    return VersionRange(low, high, low if served_from is None else served_from)


SUPPORTED: Final[Mapping[ApiKey, VersionRange]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _versions(0, 11, served_from=3),
        ApiKey.FETCH: _versions(0, 17, served_from=4),
        ApiKey.LIST_OFFSETS: _versions(0, 9, served_from=1),
        ApiKey.METADATA: _versions(0, 12),
        ApiKey.LEADER_AND_ISR: _versions(0, 7),
        ApiKey.STOP_REPLICA: _versions(0, 4),
        ApiKey.UPDATE_METADATA: _versions(0, 8),
        ApiKey.CONTROLLED_SHUTDOWN: _versions(0, 3),
        ApiKey.OFFSET_COMMIT: _versions(0, 9, served_from=2),
        ApiKey.OFFSET_FETCH: _versions(0, 9, served_from=1),
        ApiKey.FIND_COORDINATOR: _versions(0, 4),
        ApiKey.JOIN_GROUP: _versions(0, 9),
        ApiKey.HEARTBEAT: _versions(0, 4),
        ApiKey.LEAVE_GROUP: _versions(0, 5),
        ApiKey.SYNC_GROUP: _versions(0, 5),
        ApiKey.DESCRIBE_GROUPS: _versions(0, 5),
        ApiKey.LIST_GROUPS: _versions(0, 5),
        ApiKey.SASL_HANDSHAKE: _versions(0, 1),
        ApiKey.API_VERSIONS: _versions(0, 4),
        ApiKey.CREATE_TOPICS: _versions(2, 7),
        ApiKey.DELETE_TOPICS: _versions(1, 6),
        ApiKey.DELETE_RECORDS: _versions(0, 2),
        ApiKey.INIT_PRODUCER_ID: _versions(0, 5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _versions(2, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: _versions(0, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: _versions(0, 4),
        ApiKey.END_TXN: _versions(0, 4),
        ApiKey.WRITE_TXN_MARKERS: _versions(1, 1),
        ApiKey.TXN_OFFSET_COMMIT: _versions(0, 4),
        ApiKey.DESCRIBE_ACLS: _versions(1, 3),
        ApiKey.CREATE_ACLS: _versions(1, 3),
        ApiKey.DELETE_ACLS: _versions(1, 3),
        ApiKey.DESCRIBE_CONFIGS: _versions(1, 4),
        ApiKey.ALTER_CONFIGS: _versions(0, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _versions(1, 2),
        ApiKey.DESCRIBE_LOG_DIRS: _versions(1, 4),
        ApiKey.SASL_AUTHENTICATE: _versions(0, 2),
        ApiKey.CREATE_PARTITIONS: _versions(0, 3),
        ApiKey.DELETE_GROUPS: _versions(0, 2),
        ApiKey.ELECT_LEADERS: _versions(0, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _versions(0, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _versions(0, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _versions(0, 0),
        ApiKey.OFFSET_DELETE: _versions(0, 0),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _versions(0, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: _versions(0, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _versions(0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _versions(0, 0),
        ApiKey.ALTER_PARTITION: _versions(2, 3),
        ApiKey.DESCRIBE_CLUSTER: _versions(0, 1),
        ApiKey.DESCRIBE_PRODUCERS: _versions(0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: _versions(0, 0),
        ApiKey.LIST_TRANSACTIONS: _versions(0, 1),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _versions(0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _versions(0, 1),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _versions(0, 0),
    }
)

# The first flexible version of each API, by its number (``flexibleVersions`` of the
# schemas): from it on, request headers are v2 and response headers v1.
NEVER: Final = 2**15
FIRST_FLEXIBLE: Final[tuple[int, ...]] = (
    *(9, 12, 6, 9, 4, 2, 6, 3, 8, 6),  # Produce ... OffsetFetch
    *(3, 6, 4, 4, 4, 5, 3, NEVER, 3, 5),  # FindCoordinator ... CreateTopics
    *(4, 2, 2, 4, 3, 3, 3, 1, 3, 2),  # DeleteTopics ... DescribeAcls
    *(2, 2, 4, 2, 2, 2, 2, 2, 2, 2),  # CreateAcls ... RenewDelegationToken
    *(2, 2, 2, 2, 1, 0, 0, NEVER, 1, 1),  # ExpireDelegationToken ... AlterClientQuotas
    *(0, 0, 0, 1, 1, 0, 0, 0, 0, 0),  # DescribeUserScramCredentials ... FetchSnapshot
    *(0,) * 33,  # DescribeCluster and all after it
)
