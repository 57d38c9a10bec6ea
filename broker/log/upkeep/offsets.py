"""Content of the checkpoint files, gathered a few logs at a time.

Each number is valid when it is read; other work continues between two logs. A log that
grows meanwhile is recovered from an offset that was durable. A log that is deleted
meanwhile is omitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from broker.disk import checkpoints
from broker.log.log import Log
from broker.log.steps import Steps
from broker.protocol.topic_partition import TopicPartition

# The high watermark of a partition; None if it must not be written.
HighWatermark = Callable[[TopicPartition], int | None]
# The content of one directory's checkpoints, by file name.
Files = dict[str, dict[TopicPartition, int]]

LOGS_PER_STEP: Final = 256


def gather(
    logs: Mapping[TopicPartition, Log],
    high_watermark: HighWatermark,
    others: Iterable[tuple[TopicPartition, Log]] = (),
) -> Steps[dict[str, Files]]:
    """Return the files of each directory that has logs.

    ``others`` are logs of partitions whose own log is in another directory.
    """
    found: dict[str, Files] = {}
    for number, (key, log) in enumerate(list(logs.items()), 1):
        # A log that has moved meanwhile is included until the move is durable.
        if logs.get(key) is log or log.successor is not None:
            _note(found, key, log, high_watermark(key))
        if not number % LOGS_PER_STEP:
            yield None
    for key, log in others:
        _note(found, key, log, None)
    return found


def no_files() -> Files:
    """Return the files of a directory without logs."""
    return {
        checkpoints.RECOVERY_POINTS: {},
        checkpoints.LOG_START_OFFSETS: {},
        checkpoints.HIGH_WATERMARKS: {},
        checkpoints.CLEANER_OFFSETS: {},
    }


def _note(
    found: dict[str, Files], key: TopicPartition, log: Log, high_watermark: int | None
) -> None:
    home = log.home
    files = found.get(home)
    if files is None:
        files = found[home] = no_files()
    files[checkpoints.RECOVERY_POINTS][key] = log.recovery_point
    if log.log_start_offset > log.segments[0].base_offset:
        files[checkpoints.LOG_START_OFFSETS][key] = log.log_start_offset
    if high_watermark is not None:
        files[checkpoints.HIGH_WATERMARKS][key] = high_watermark
    # A compacted log keeps its gaps also after its topic is no longer compacted.
    if log.config.compacts or log.cleaner_offset > 0:
        files[checkpoints.CLEANER_OFFSETS][key] = log.cleaner_offset


def readers_by_home(
    logs: Mapping[TopicPartition, Log], offset_of: Callable[[Log], int]
) -> dict[str, Callable[[], dict[TopicPartition, int]]]:
    """Return, by directory, functions that read an offset of its logs when called."""
    by_home: dict[str, dict[TopicPartition, Log]] = {}
    for key, log in logs.items():
        by_home.setdefault(log.home, {})[key] = log
    return {
        home: partial(_read, each, offset_of) for home, each in sorted(by_home.items())
    }


def _read(
    logs: Mapping[TopicPartition, Log], offset_of: Callable[[Log], int]
) -> dict[TopicPartition, int]:
    """Return the offsets of open logs; a closed log's name may have been reused."""
    return {key: offset_of(log) for key, log in logs.items() if log.closed is None}
