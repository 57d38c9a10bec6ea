"""Names of the directories in a log directory, and their meaning.

``topic-partition`` contains a log, ``topic-partition.<32 hex digits>-delete`` a log
being removed. The suffix ``-future`` marks a copy that will replace the log in another
directory. The suffix ``-stray`` marks a log without a topic, set aside for the
operator. The names are those of Kafka's ``LocalLog``. Any other directory, and
``__cluster_metadata`` (KRaft's own log), is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Container
from typing import Final
from uuid import UUID

from broker.protocol.topic_partition import TopicPartition

STRAY: Final = "-stray"
_CLUSTER_METADATA: Final = "__cluster_metadata"
NAME_MAX: Final = 255
_LOG: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)", re.ASCII)
_DOOMED: Final = re.compile(r".+\.[0-9a-f]{32}-delete")
_FUTURE: Final = re.compile(r"(.+)\.[0-9a-f]{32}-future")
_LOG_FILES: Final = (".log", ".index", ".timeindex", ".snapshot", ".swap", ".cleaned")
_LOG_FILE_NAMES: Final = frozenset({"partition.metadata", "leader-epoch-checkpoint"})


def log_key(name: str) -> TopicPartition | None:
    """Return the topic and the partition of a log's directory; None for any other.

    >>> log_key("a-b-3"), log_key("a-3.0-stray"), log_key("__cluster_metadata-0")
    (TopicPartition(topic='a-b', partition=3), None, None)
    """
    match = _LOG.fullmatch(name)
    if match is None or match[1] == _CLUSTER_METADATA:
        return None
    return TopicPartition(match[1], int(match[2]))


def future_key(name: str) -> TopicPartition | None:
    """Return the topic and the partition of a future log's directory, or None.

    >>> future_key("a-3." + 32 * "0" + "-future"), future_key("a-3")
    (TopicPartition(topic='a', partition=3), None)
    """
    match = _FUTURE.fullmatch(name)
    return None if match is None else log_key(match[1])


def future_name(key: TopicPartition, number: UUID) -> str:
    """Return Kafka's name for a future log; it may be longer than `NAME_MAX`.

    >>> future_name(TopicPartition("a", 3), UUID(int=255))
    'a-3.000000000000000000000000000000ff-future'
    """
    return f"{key.topic}-{key.partition}.{number.hex}-future"


def is_doomed(name: str) -> bool:
    """Return whether a directory contains a log that was being removed.

    >>> is_doomed("a-3." + 32 * "0" + "-delete"), is_doomed("please-delete")
    (True, False)
    """
    return _DOOMED.fullmatch(name) is not None


def doomed_name(key: TopicPartition, number: int) -> str:
    """Return Kafka's name for a log to be removed; ``number`` makes it unique.

    >>> doomed_name(("a", 3), 255)
    'a-3.000000000000000000000000000000ff-delete'
    """
    topic, partition = key
    suffix = f"-{partition}.{number:032x}-delete"
    return topic[: NAME_MAX - len(suffix)] + suffix


def holds_a_log(names: Collection[str]) -> bool:
    """Return whether a directory with these names is empty or contains log files."""
    return not names or any(
        name in _LOG_FILE_NAMES or name.endswith(_LOG_FILES) for name in names
    )


def stray_name(key: TopicPartition, taken: Container[str]) -> str:
    """Return a free name for a log that is set aside.

    >>> stray_name(("a", 3), ())
    'a-3.00000000000000000000000000000000-stray'
    """
    topic, partition = key
    number = 0
    while True:
        suffix = f"-{partition}.{number:032x}{STRAY}"
        name = topic[: NAME_MAX - len(suffix)] + suffix
        if name not in taken:
            return name
        number += 1
