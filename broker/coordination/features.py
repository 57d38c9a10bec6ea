"""Features of the cluster and their finalized levels (KIP-584).

A feature changes the behaviour of the whole cluster, so its level is stored, and only
an administrator changes it. Kafka: ``Feature`` and ``FeatureControlManager``. Level 0
means that the feature is not finalized.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from broker.protocol.errors import ErrorCode, KafkaError

TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"


class Levels(NamedTuple):
    """The range of levels of a feature that this broker supports."""

    lowest: int
    highest: int


SUPPORTED: Final[Mapping[str, Levels]] = MappingProxyType(
    {TRANSACTION_VERSION: Levels(0, 2), GROUP_VERSION: Levels(0, 1)}
)


class UpgradeType(enum.IntEnum):
    """The permitted direction of an update, by its number in UpdateFeatures."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A level to finalize, and the number of its upgrade type."""

    level: int
    upgrade_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeatures:
    """Levels by feature, with an epoch; -1: none. Clients keep those of the last epoch.

    >>> FinalizedFeatures(epoch=7, levels={TRANSACTION_VERSION: 1}).transaction_version
    1
    """

    epoch: int
    levels: Mapping[str, int]

    @property
    def transaction_version(self) -> int:
        """The level of ``transaction.version``."""
        return self.levels.get(TRANSACTION_VERSION, 0)

    @property
    def group_version(self) -> int:
        """The level of ``group.version``; from level 1, consumer groups are served."""
        return self.levels.get(GROUP_VERSION, 0)


NO_FEATURES: Final = FinalizedFeatures(epoch=-1, levels=MappingProxyType({}))


def newest_levels() -> dict[str, int]:
    """Return the levels of a new cluster, as ``kafka-storage format`` sets them."""
    return {name: levels.highest for name, levels in SUPPORTED.items()}


def check_update(name: str, update: FeatureUpdate, present: int) -> None:
    """Raise INVALID_UPDATE_VERSION unless a feature may leave its present level."""
    level, upgrade_type = update
    reason = None
    known = SUPPORTED.get(name)
    if upgrade_type not in tuple(UpgradeType):
        reason = "There is no such upgrade type."
    elif level < 0:
        reason = "A level is not negative."
    elif known is None:
        reason = "The broker does not support this feature."
    elif not known.lowest <= level <= known.highest:
        reason = f"The broker supports levels {known.lowest} to {known.highest}."
    elif level < present and upgrade_type == UpgradeType.UPGRADE:
        reason = "A lower level needs a safe or an unsafe downgrade."
    elif level > present and upgrade_type != UpgradeType.UPGRADE:
        reason = "A higher level is no downgrade."
    if reason is not None:
        raise KafkaError(
            ErrorCode.invalid_update_version,
            f"Invalid update version {level} for feature {name}. {reason}",
        )
