"""Defaults of Kafka 3.9 that differ in Kafka 4.4, of the keys that have an effect.

A key's own default is that of Kafka 4.4; ``doorkeeper.kafka.defaults`` selects a
release.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from broker.config.cluster_keys import (
    ASSIGNOR_CLASSES,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_MIGRATION_POLICY,
)
from broker.config.storage_keys import (
    LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS,
    NUM_RECOVERY_THREADS_PER_DATA_DIR,
)
from broker.protocol.config_key import LONG_MAX

# By the values of doorkeeper.kafka.defaults.
FORMER_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "3.9": MappingProxyType(
            {
                LOG_MESSAGE_TIMESTAMP_AFTER_MAX_MS.name: LONG_MAX,
                NUM_RECOVERY_THREADS_PER_DATA_DIR.name: 1,
                GROUP_CONSUMER_ASSIGNORS.name: tuple(ASSIGNOR_CLASSES),
                GROUP_CONSUMER_MIGRATION_POLICY.name: "disabled",
            }
        ),
        "4.4": MappingProxyType({}),
    }
)
