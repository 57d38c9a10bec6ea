"""The coordinator's settings, under the names that Kafka's keys give them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's ``GroupCoordinatorConfig``, as far as classic groups go; its defaults."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    # Kafka's constant (``classicGroupNewMemberJoinTimeoutMs``); it has no key.
    new_member_join_timeout_ms: int = 300_000
