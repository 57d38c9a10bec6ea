"""The coordinator's settings, named after Kafka's keys."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


class MigrationPolicy(enum.Enum):
    """The allowed conversions of groups with members."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Return whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def downgrades(self) -> bool:
        """Return whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The settings that a consumer group may override."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


# Returns a group's own settings by its id; None if it has none.
OwnSettings: TypeAlias = Callable[[str], ConsumerSettings | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Kafka's ``GroupCoordinatorConfig``, with its defaults."""

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
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_max_size: int = 2**31 - 1
    # The first is the default.
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_assignment_interval_ms: int = 1_000
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    # Kafka's constant (``REGEX_BATCH_REFRESH_MIN_INTERVAL_MS``).
    consumer_regex_pause_ms: int = 10_000

    @property
    def consumer_settings(self) -> ConsumerSettings:
        """The default settings of consumer groups."""
        return ConsumerSettings(
            session_timeout_ms=self.consumer_session_timeout_ms,
            heartbeat_interval_ms=self.consumer_heartbeat_interval_ms,
            assignment_interval_ms=self.consumer_assignment_interval_ms,
        )
