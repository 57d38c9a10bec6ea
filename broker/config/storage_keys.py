"""Keys of the log, its cleaner, its flushing and its retention.

Names, defaults and ranges are those of Kafka's ``ServerLogConfigs``,
``CleanerConfig`` and ``LogConfig``. `broker.cluster.topic_configs` maps keys of topics
to the broker's keys of other names (``segment.bytes`` to ``log.segment.bytes``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.protocol.config_key import (
    LONG_MAX,
    ConfigType,
    boolean,
    floating,
    integer,
    long,
    optional_integer,
    optional_text,
    text,
    words,
)

LOG_DIR: Final = text(
    "log.dir", "/tmp/kafka-logs", "Directory of logs when log.dirs is absent."
)
LOG_DIRS: Final = optional_text(
    "log.dirs", "Directories where logs are kept, separated by commas."
)
NUM_PARTITIONS: Final = integer(
    "num.partitions", 1, "Partitions of a topic created without a number.", low=1
)
AUTO_CREATE_TOPICS_ENABLE: Final = boolean(
    "auto.create.topics.enable",
    True,
    "Whether asking for the metadata of an unknown topic creates it.",
)
NUM_RECOVERY_THREADS_PER_DATA_DIR: Final = integer(
    "num.recovery.threads.per.data.dir",
    2,
    "Threads per log directory that open and recover logs at start; an altered number "
    "counts from the next start.",
    low=1,
)
LOG_SEGMENT_BYTES: Final = integer(
    "log.segment.bytes",
    1_073_741_824,
    "The size at which a new segment is begun.",
    low=14,
)
LOG_ROLL_HOURS: Final = integer(
    "log.roll.hours",
    168,
    "The age at which a new segment is begun, unless log.roll.ms is set.",
    low=1,
)
LOG_ROLL_MS: Final = optional_integer(
    "log.roll.ms", "The age at which a new segment is begun.", low=1
)
LOG_ROLL_JITTER_HOURS: Final = integer(
    "log.roll.jitter.hours",
    0,
    "The most to subtract at random from log.roll.hours.",
    low=0,
)
LOG_ROLL_JITTER_MS: Final = optional_integer(
    "log.roll.jitter.ms", "The most to subtract at random from log.roll.ms.", low=0
)
LOG_RETENTION_HOURS: Final = integer(
    "log.retention.hours",
    168,
    "The age at which a segment is deleted; the weakest of the three such keys.",
)
LOG_RETENTION_MINUTES: Final = optional_integer(
    "log.retention.minutes",
    "The age at which a segment is deleted, unless log.retention.ms is set.",
    low=-(2**31),
    high=2**31 - 1,
    type=ConfigType.INT,
)
LOG_RETENTION_MS: Final = optional_integer(
    "log.retention.ms", "The age at which a segment is deleted; -1 means never."
)
LOG_RETENTION_BYTES: Final = long(
    "log.retention.bytes",
    -1,
    "The size of a partition beyond which old segments are deleted; -1: no bound.",
)
LOG_INITIAL_TASK_DELAY_MS: Final = replace(
    long(
        "log.initial.task.delay.ms",
        30_000,
        "Delay from the start to the first check of segments.",
        low=0,
    ),
    internal=True,
)
LOG_RETENTION_CHECK_INTERVAL_MS: Final = long(
    "log.retention.check.interval.ms",
    300_000,
    "Period of the check of segments for deletion.",
    low=1,
)
LOG_CLEANUP_POLICY: Final = words(
    "log.cleanup.policy",
    ("delete",),
    "Treatment of old segments.",
    choices=("compact", "delete"),
)
LOG_CLEANER_ENABLE: Final = boolean(
    "log.cleaner.enable",
    True,
    "Whether the cleaner runs; compaction needs it.",
)
LOG_CLEANER_THREADS: Final = integer(
    "log.cleaner.threads", 1, "Number of logs that are cleaned at a time.", low=0
)
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND: Final = floating(
    "log.cleaner.io.max.bytes.per.second",
    1.7976931348623157e308,
    "The cleaner's reading and writing together stay below this rate.",
    low=1.0,
)
LOG_CLEANER_DEDUPE_BUFFER_SIZE: Final = long(
    "log.cleaner.dedupe.buffer.size",
    134_217_728,
    "Memory for the cleaner's map of keys to offsets.",
    low=1,
)
LOG_CLEANER_IO_BUFFER_SIZE: Final = integer(
    "log.cleaner.io.buffer.size",
    524_288,
    "Memory for the cleaner's reading and writing.",
    low=0,
    inert=True,
)
LOG_CLEANER_IO_BUFFER_LOAD_FACTOR: Final = floating(
    "log.cleaner.io.buffer.load.factor",
    0.9,
    "Largest load of the cleaner's map of keys.",
    low=0.0,
    high=1.0,
)
LOG_CLEANER_BACKOFF_MS: Final = long(
    "log.cleaner.backoff.ms",
    15_000,
    "Time that the cleaner sleeps when there is nothing to clean.",
    low=0,
)
LOG_CLEANER_MIN_CLEANABLE_RATIO: Final = floating(
    "log.cleaner.min.cleanable.ratio",
    0.5,
    "The share of dirty bytes from which a log is cleaned.",
    low=0.0,
    high=1.0,
)
LOG_CLEANER_DELETE_RETENTION_MS: Final = long(
    "log.cleaner.delete.retention.ms",
    86_400_000,
    "Retention time of a tombstone in a compacted topic.",
    low=0,
)
LOG_CLEANER_MIN_COMPACTION_LAG_MS: Final = long(
    "log.cleaner.min.compaction.lag.ms",
    0,
    "The least age of a record that is compacted away.",
    low=0,
)
LOG_CLEANER_MAX_COMPACTION_LAG_MS: Final = long(
    "log.cleaner.max.compaction.lag.ms",
    LONG_MAX,
    "The age from which a record must be considered for compaction.",
    low=1,
)
LOG_INDEX_SIZE_MAX_BYTES: Final = integer(
    "log.index.size.max.bytes",
    10_485_760,
    "The largest offset index; a full one begins a new segment.",
    low=4,
)
LOG_INDEX_INTERVAL_BYTES: Final = integer(
    "log.index.interval.bytes",
    4096,
    "Bytes of records between two entries of the offset index.",
    low=0,
)
LOG_FLUSH_INTERVAL_MESSAGES: Final = long(
    "log.flush.interval.messages",
    LONG_MAX,
    "Records appended to a partition before it is flushed to disk.",
    low=1,
)
LOG_FLUSH_INTERVAL_MS: Final = optional_integer(
    "log.flush.interval.ms",
    "The longest that a record stays unflushed; when absent, "
    "log.flush.scheduler.interval.ms.",
    low=0,
)
LOG_FLUSH_SCHEDULER_INTERVAL_MS: Final = long(
    "log.flush.scheduler.interval.ms",
    LONG_MAX,
    "Period of the check of partitions for flushing.",
)
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS: Final = integer(
    "log.flush.offset.checkpoint.interval.ms",
    60_000,
    "Period of writing recovery points.",
    low=0,
)
LOG_FLUSH_START_OFFSET_CHECKPOINT_INTERVAL_MS: Final = integer(
    "log.flush.start.offset.checkpoint.interval.ms",
    60_000,
    "Period of writing log start offsets.",
    low=0,
    inert=True,
)
LOG_SEGMENT_DELETE_DELAY_MS: Final = long(
    "log.segment.delete.delay.ms",
    60_000,
    "Time that a deleted segment's files are kept.",
    low=0,
)
LOG_PREALLOCATE: Final = boolean(
    "log.preallocate",
    False,
    "Whether a segment's file is created at its full size.",
    inert=True,
)
MESSAGE_MAX_BYTES: Final = integer(
    "message.max.bytes", 1_048_588, "The largest record batch accepted.", low=0
)
COMPRESSION_TYPE: Final = text(
    "compression.type",
    "producer",
    "The codec of stored batches; producer keeps the one that they came with.",
    choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
)
COMPRESSION_GZIP_LEVEL: Final = integer(
    "compression.gzip.level",
    -1,
    "Level of gzip where batches are packed anew: 1 to 9; -1, its default.",
    low=-1,
    high=9,
    without=(0,),
)
COMPRESSION_LZ4_LEVEL: Final = integer(
    "compression.lz4.level",
    9,
    "Level of lz4 where batches are packed anew; 9 is its quick mode (Kafka).",
    low=1,
    high=17,
)
COMPRESSION_ZSTD_LEVEL: Final = integer(
    "compression.zstd.level",
    3,
    "Level of zstd where batches are packed anew.",
    low=-131_072,
    high=22,
)
LOG_MESSAGE_TIMESTAMP_TYPE: Final = text(
    "log.message.timestamp.type",
    "CreateTime",
    "Whether a record's time stamp is the producer's or that of its append.",
    choices=("CreateTime", "LogAppendTime"),
)
LOG_MESSAGE_TIMESTAMP_BEFORE_MAX_MS: Final = long(
    "log.message.timestamp.before.max.ms",
    LONG_MAX,
    "Largest lag of a record's time stamp behind the broker's clock.",
    low=0,
)
LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS: Final = long(
    "log.message.timestamp.after.max.ms",
    3_600_000,
    "Largest lead of a record's time stamp before the broker's clock.",
    low=0,
)
LOG_MESSAGE_TIMESTAMP_DIFFERENCE_MAX_MS: Final = long(
    "log.message.timestamp.difference.max.ms",
    LONG_MAX,
    "The bound of both keys above in older releases.",
    low=0,
)
LOG_MESSAGE_DOWNCONVERSION_ENABLE: Final = boolean(
    "log.message.downconversion.enable",
    True,
    "Whether old consumers get old record formats; this broker has only the current.",
    inert=True,
)
