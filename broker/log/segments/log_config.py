"""The settings of one log: Kafka's topic configs, as ``LogConfig`` names them.

A field is the topic config with its dots turned into underscores; units and defaults
are Kafka's 3.9. Where they come from (broker defaults, topic overrides) is not this
package's affair.
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

    # Empty where the policy is unknown.
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    # -1 means without limit, for both.
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS

    # Of a deleted partition's directory.
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
        """The codec's level under compression.type; None if it has no level."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)

    @property
    def compacts(self) -> bool:
        """Return whether cleanup.policy holds compact."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Return whether cleanup.policy holds delete."""
        return "delete" in self.cleanup_policy
