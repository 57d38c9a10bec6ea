"""Keys of the broker's identity, replication, controller, groups and transactions.

Names, defaults and ranges are those of Kafka's ``ServerConfigs``,
``ReplicationConfigs``, ``KRaftConfigs``, ``ZkConfigs``, ``GroupCoordinatorConfig``,
``TransactionLogConfig`` and ``TransactionStateManagerConfig``.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from broker.protocol.config_key import (
    INT_MAX,
    LONG_MAX,
    ConfigType,
    boolean,
    integer,
    long,
    optional_integer,
    optional_text,
    text,
    words,
)

# ---- identity ----

BROKER_ID: Final = integer(
    "broker.id", -1, "This broker's number; -1 has one generated.", low=-1
)
NODE_ID: Final = integer(
    "node.id",
    -1,
    "This broker's number; the same as broker.id, under KRaft's name.",
    low=-1,
)
BROKER_ID_GENERATION_ENABLE: Final = boolean(
    "broker.id.generation.enable",
    True,
    "Whether ZooKeeper numbers a broker that has no number.",
)
RESERVED_BROKER_MAX_ID: Final = integer(
    "reserved.broker.max.id",
    1000,
    "Generated numbers lie above this one, all others do not.",
    low=0,
)
BROKER_RACK: Final = optional_text("broker.rack", "The rack of this broker.")
PROCESS_ROLES: Final = words(
    "process.roles",
    (),
    "KRaft's roles of this process; the broker role is served, and coordination is "
    "embedded.",
    choices=("broker", "controller"),
    inert=True,
)
ZOOKEEPER_CONNECT: Final = optional_text(
    "zookeeper.connect",
    "Hosts of ZooKeeper, with an optional chroot; when absent, a cluster of one.",
)
ZOOKEEPER_SESSION_TIMEOUT_MS: Final = integer(
    "zookeeper.session.timeout.ms",
    18_000,
    "The session's time-out.",
    low=1,
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS: Final = optional_integer(
    "zookeeper.connection.timeout.ms",
    "Time-out of a connection attempt; when absent, the session's time-out.",
    low=1,
    high=INT_MAX,
    type=ConfigType.INT,
)

# ---- replication and controller ----

DEFAULT_REPLICATION_FACTOR: Final = integer(
    "default.replication.factor", 1, "Replicas of a topic created without a number."
)
MIN_INSYNC_REPLICAS: Final = integer(
    "min.insync.replicas",
    1,
    "In-sync replicas that a Produce with acks=-1 needs.",
    low=1,
)
REPLICA_LAG_TIME_MAX_MS: Final = long(
    "replica.lag.time.max.ms",
    30_000,
    "A follower that has not caught up for this long leaves the ISR.",
)
REPLICA_SOCKET_TIMEOUT_MS: Final = integer(
    "replica.socket.timeout.ms",
    30_000,
    "Time-out of a follower's requests.",
)
REPLICA_SOCKET_RECEIVE_BUFFER_BYTES: Final = integer(
    "replica.socket.receive.buffer.bytes",
    65_536,
    "SO_RCVBUF of a follower's socket.",
    inert=True,
)
REPLICA_FETCH_MAX_BYTES: Final = integer(
    "replica.fetch.max.bytes",
    1_048_576,
    "Bytes of one partition that a follower asks for.",
    low=0,
)
REPLICA_FETCH_WAIT_MAX_MS: Final = integer(
    "replica.fetch.wait.max.ms",
    500,
    "Longest wait of a follower's Fetch.",
)
REPLICA_FETCH_BACKOFF_MS: Final = integer(
    "replica.fetch.backoff.ms",
    1000,
    "Pause after a follower's Fetch failed.",
    low=0,
)
REPLICA_FETCH_MIN_BYTES: Final = integer(
    "replica.fetch.min.bytes",
    1,
    "Bytes for which a follower's Fetch waits.",
)
REPLICA_FETCH_RESPONSE_MAX_BYTES: Final = integer(
    "replica.fetch.response.max.bytes",
    10_485_760,
    "Bytes of all partitions that a follower asks for.",
    low=0,
)
NUM_REPLICA_FETCHERS: Final = integer(
    "num.replica.fetchers",
    1,
    "Fetchers per source broker.",
)
REPLICA_HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS: Final = long(
    "replica.high.watermark.checkpoint.interval.ms",
    5000,
    "Period of writing high watermarks.",
    inert=True,
)
FETCH_PURGATORY_PURGE_INTERVAL_REQUESTS: Final = integer(
    "fetch.purgatory.purge.interval.requests",
    1000,
    "Completed but watched Fetches after which the purgatory is purged.",
    inert=True,
)
PRODUCER_PURGATORY_PURGE_INTERVAL_REQUESTS: Final = integer(
    "producer.purgatory.purge.interval.requests",
    1000,
    "Completed but watched Produces after which the purgatory is purged.",
    inert=True,
)
DELETE_RECORDS_PURGATORY_PURGE_INTERVAL_REQUESTS: Final = integer(
    "delete.records.purgatory.purge.interval.requests",
    1,
    "Completed but watched DeleteRecords after which the purgatory is purged.",
    inert=True,
)
LEADER_REPLICATION_THROTTLED_RATE: Final = replace(
    long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second of throttled replicas that followers are sent.",
        low=0,
    ),
    internal=True,
)
FOLLOWER_REPLICATION_THROTTLED_RATE: Final = replace(
    long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second of throttled replicas that are fetched from leaders.",
        low=0,
    ),
    internal=True,
)
REPLICATION_QUOTA_WINDOW_NUM: Final = integer(
    "replication.quota.window.num",
    11,
    "Windows over which the rates of throttled replicas are taken.",
    low=1,
)
REPLICATION_QUOTA_WINDOW_SIZE_SECONDS: Final = integer(
    "replication.quota.window.size.seconds",
    1,
    "The length of such a window.",
    low=1,
)
REPLICA_ALTER_LOG_DIRS_IO_MAX_BYTES_PER_SECOND: Final = replace(
    long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Bytes per second of replicas that move between log directories.",
        low=0,
    ),
    internal=True,
)
NUM_REPLICA_ALTER_LOG_DIRS_THREADS: Final = optional_integer(
    "num.replica.alter.log.dirs.threads",
    "Replicas that move between log directories at a time; when absent, as many as "
    "there are directories.",
    low=-(2**31),
    high=INT_MAX,
    type=ConfigType.INT,
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_NUM: Final = integer(
    "alter.log.dirs.replication.quota.window.num",
    11,
    "Windows over which the rate of such moves is taken.",
    low=1,
)
ALTER_LOG_DIRS_REPLICATION_QUOTA_WINDOW_SIZE_SECONDS: Final = integer(
    "alter.log.dirs.replication.quota.window.size.seconds",
    1,
    "The length of such a window.",
    low=1,
)
UNCLEAN_LEADER_ELECTION_ENABLE: Final = boolean(
    "unclean.leader.election.enable",
    False,
    "Whether a replica outside the ISR may lead, at the price of records.",
)
AUTO_LEADER_REBALANCE_ENABLE: Final = boolean(
    "auto.leader.rebalance.enable",
    True,
    "Whether the controller moves leadership back to preferred replicas.",
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: Final = integer(
    "leader.imbalance.per.broker.percentage",
    10,
    "Share of leaders that are not preferred above which they are moved.",
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: Final = long(
    "leader.imbalance.check.interval.seconds",
    300,
    "Period of the controller's check for imbalance.",
    low=1,
)
CONTROLLER_SOCKET_TIMEOUT_MS: Final = integer(
    "controller.socket.timeout.ms",
    30_000,
    "Time-out of the controller's requests.",
)
CONTROLLED_SHUTDOWN_ENABLE: Final = boolean(
    "controlled.shutdown.enable",
    True,
    "Whether a stopping broker first hands over its partitions.",
)
CONTROLLED_SHUTDOWN_MAX_RETRIES: Final = integer(
    "controlled.shutdown.max.retries",
    3,
    "Attempts to hand over partitions.",
)
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS: Final = long(
    "controlled.shutdown.retry.backoff.ms",
    5000,
    "Pause between those attempts.",
)

# ---- groups ----

GROUP_MIN_SESSION_TIMEOUT_MS: Final = integer(
    "group.min.session.timeout.ms", 6000, "The shortest session that a member may have."
)
GROUP_MAX_SESSION_TIMEOUT_MS: Final = integer(
    "group.max.session.timeout.ms",
    1_800_000,
    "The longest session that a member may have.",
)
GROUP_INITIAL_REBALANCE_DELAY_MS: Final = integer(
    "group.initial.rebalance.delay.ms",
    3000,
    "Time that a new group waits for more members before its first rebalance.",
)
GROUP_MAX_SIZE: Final = integer(
    "group.max.size", INT_MAX, "The most members of a group.", low=1
)
GROUP_CONSUMER_SESSION_TIMEOUT_MS: Final = integer(
    "group.consumer.session.timeout.ms",
    45_000,
    "The session of members of consumer groups.",
    low=1,
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS: Final = integer(
    "group.consumer.heartbeat.interval.ms",
    5_000,
    "The interval at which members of consumer groups are to send heartbeats.",
    low=1,
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS: Final = integer(
    "group.consumer.min.session.timeout.ms",
    45_000,
    "The shortest session that a consumer group may have.",
    low=1,
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS: Final = integer(
    "group.consumer.max.session.timeout.ms",
    60_000,
    "The longest session that a consumer group may have.",
    low=1,
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS: Final = integer(
    "group.consumer.min.heartbeat.interval.ms",
    5_000,
    "The shortest heartbeat interval that a consumer group may have.",
    low=1,
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS: Final = integer(
    "group.consumer.max.heartbeat.interval.ms",
    15_000,
    "The longest heartbeat interval that a consumer group may have.",
    low=1,
)
GROUP_CONSUMER_MAX_SIZE: Final = integer(
    "group.consumer.max.size", INT_MAX, "The most members of a consumer group.", low=1
)
# Kafka's classes of assignors, as in configuration files of older releases.
ASSIGNOR_CLASSES: Final = MappingProxyType(
    {
        "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
        "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
    }
)
GROUP_CONSUMER_ASSIGNORS: Final = words(
    "group.consumer.assignors",
    ("uniform", "range"),
    "The assignors of consumer groups; the first is the default.",
    choices=("uniform", "range", *ASSIGNOR_CLASSES),
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS: Final = replace(
    integer(
        "group.consumer.assignment.interval.ms",
        1_000,
        "The shortest time between two assignments of a consumer group.",
        low=0,
    ),
    internal=True,
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS: Final = replace(
    integer(
        "group.consumer.min.assignment.interval.ms",
        0,
        "The shortest assignment interval that a consumer group may have.",
        low=0,
    ),
    internal=True,
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS: Final = replace(
    integer(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "The longest assignment interval that a consumer group may have.",
        low=0,
    ),
    internal=True,
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS: Final = replace(
    integer(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "The longest time between two searches for the topics of regular expressions.",
        low=10_000,
    ),
    internal=True,
)
GROUP_CONSUMER_MIGRATION_POLICY: Final = replace(
    text(
        "group.consumer.migration.policy",
        "bidirectional",
        "The kinds of groups with members that may turn into the other kind.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    internal=True,
)
OFFSET_METADATA_MAX_BYTES: Final = integer(
    "offset.metadata.max.bytes", 4096, "The largest metadata of a committed offset."
)
OFFSETS_LOAD_BUFFER_SIZE: Final = integer(
    "offsets.load.buffer.size",
    5_242_880,
    "Bytes read at once when offsets are loaded, at most 256 KiB unless a batch is "
    "larger.",
    low=1,
)
OFFSETS_TOPIC_REPLICATION_FACTOR: Final = integer(
    "offsets.topic.replication.factor",
    3,
    "Replicas of __consumer_offsets.",
    low=1,
    high=32_767,
    type=ConfigType.SHORT,
)
OFFSETS_TOPIC_NUM_PARTITIONS: Final = integer(
    "offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", low=1
)
OFFSETS_TOPIC_SEGMENT_BYTES: Final = integer(
    "offsets.topic.segment.bytes",
    104_857_600,
    "Segment size of __consumer_offsets.",
    low=1,
)
OFFSETS_TOPIC_COMPRESSION_CODEC: Final = integer(
    "offsets.topic.compression.codec",
    0,
    "Codec of __consumer_offsets, by number.",
    low=0,
    high=4,
)
OFFSETS_RETENTION_MINUTES: Final = integer(
    "offsets.retention.minutes",
    10_080,
    "Retention time of the offsets of an empty group.",
    low=1,
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS: Final = long(
    "offsets.retention.check.interval.ms",
    600_000,
    "Period of the check for stale offsets.",
    low=1,
)
OFFSETS_COMMIT_REQUIRED_ACKS: Final = integer(
    "offsets.commit.required.acks",
    -1,
    "Acknowledgements that a commit waits for; always those of the whole ISR here.",
    low=-1,
    high=1,
    type=ConfigType.SHORT,
    inert=True,
)
OFFSETS_COMMIT_TIMEOUT_MS: Final = integer(
    "offsets.commit.timeout.ms",
    5000,
    "Time-out of a commit that waits for the replicas of __consumer_offsets.",
    low=1,
)

# ---- producers and transactions ----

PRODUCER_ID_EXPIRATION_MS: Final = integer(
    "producer.id.expiration.ms",
    86_400_000,
    "Retention time of an idle producer's sequence numbers.",
    low=1,
)
PRODUCER_ID_EXPIRATION_CHECK_INTERVAL_MS: Final = replace(
    integer(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "Period of the check for idle producers.",
        low=1,
        inert=True,
    ),
    internal=True,
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE: Final = boolean(
    "transaction.partition.verification.enable",
    True,
    "Verify with the coordinator that a partition was added to the transaction.",
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS: Final = replace(
    integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "How long a leader tries to add a partition to a transaction.",
        low=0,
    ),
    internal=True,
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MS: Final = replace(
    integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "Pause before a leader tries again to add a partition to a transaction.",
        low=1,
    ),
    internal=True,
)
TRANSACTIONAL_ID_EXPIRATION_MS: Final = integer(
    "transactional.id.expiration.ms",
    604_800_000,
    "Retention time of an idle transactional id.",
    low=1,
)
TRANSACTION_MAX_TIMEOUT_MS: Final = integer(
    "transaction.max.timeout.ms",
    900_000,
    "The longest time-out that a transaction may ask for.",
    low=1,
)
TRANSACTION_STATE_LOG_MIN_ISR: Final = integer(
    "transaction.state.log.min.isr",
    2,
    "min.insync.replicas of __transaction_state.",
    low=1,
)
TRANSACTION_STATE_LOG_LOAD_BUFFER_SIZE: Final = integer(
    "transaction.state.log.load.buffer.size",
    5_242_880,
    "Bytes read at once when transactions are loaded.",
    low=1,
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR: Final = integer(
    "transaction.state.log.replication.factor",
    3,
    "Replicas of __transaction_state.",
    low=1,
    high=32_767,
    type=ConfigType.SHORT,
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS: Final = integer(
    "transaction.state.log.num.partitions",
    50,
    "Partitions of __transaction_state.",
    low=1,
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES: Final = integer(
    "transaction.state.log.segment.bytes",
    104_857_600,
    "Segment size of __transaction_state.",
    low=1,
)
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS: Final = integer(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    10_000,
    "Period of aborting timed-out transactions.",
    low=1,
)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS: Final = integer(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    3_600_000,
    "Period of removing expired transactional ids.",
    low=1,
)
