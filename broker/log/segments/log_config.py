"""The settings of one log: the topic configs of Kafka's ``LogConfig``.

A field is named like the topic config, with underscores instead of dots. Units and
defaults are those of Kafka 3.9. Other packages combine broker defaults and topic
overrides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONG_MAX: Final = 2**63 - 1
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """Settings of one log: rolling, retention, flushing, checks and compaction."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096

    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX

    # Empty if the policy is unknown.
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    # -1 means without limit, for both.
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS

    # Delay before the directory of a deleted partition is removed.
    file_delete_delay_ms: int = 60_000

    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    min_cleanable_dirty_ratio: float = 0.5

    max_message_bytes: int = 1_048_588
    # producer: keep the producer's codec; otherwise recompress.
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    # CreateTime or LogAppendTime.
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000

    # The broker's producer.id.expiration.ms.
    producer_id_expiration_ms: int = DAY_MS

    @property
    def flushes(self) -> bool:
        """Return whether flush.messages or flush.ms is set."""
        return min(self.flush_messages, self.flush_ms) < LONG_MAX

    @property
    def compression_level(self) -> int | None:
        """The level of compression.type's codec; None if the codec has no levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def compacts(self) -> bool:
        """Return whether cleanup.policy contains compact."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Return whether cleanup.policy contains delete."""
        return "delete" in self.cleanup_policy
