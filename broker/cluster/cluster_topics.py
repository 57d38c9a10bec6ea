"""Topics of the cluster, and the valid names of topics.

Kafka's ``org.apache.kafka.common.internals.Topic``: letters, digits, dot, underscore
and hyphen, at most 249 of them, so that ``name-partition`` is a directory's name. Two
names that differ only in dots and underscores collide, because metrics write both as
underscores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from broker.protocol.errors import ErrorCode, KafkaError

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})
NAME_LENGTH_MAX: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """An existing topic: one leader epoch per partition, and configs as written."""

    name: str
    topic_id: UUID
    leader_epochs: tuple[int, ...]
    configs: Mapping[str, str]

    @property
    def partitions(self) -> range:
        """The indexes of the partitions."""
        return range(len(self.leader_epochs))


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION unless the name of a topic is valid."""
    if not name:
        fault = "the empty string is not allowed"
    elif name in (".", ".."):
        fault = "it cannot be '.' or '..'"
    elif len(name) > NAME_LENGTH_MAX:
        fault = f"it is {len(name)} characters long, at most {NAME_LENGTH_MAX} may be"
    elif not _LEGAL.fullmatch(name):
        fault = "it has characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(
        ErrorCode.invalid_topic_exception, f"topic name {name!r} is illegal: {fault}"
    )


def check_collision(name: str, others: Iterable[str]) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if metrics could not distinguish two names."""
    unified = name.replace(".", "_")
    for other in others:
        if other != name and other.replace(".", "_") == unified:
            raise KafkaError(
                ErrorCode.invalid_topic_exception,
                f"topic {name!r} collides with the existing topic {other!r}",
            )
