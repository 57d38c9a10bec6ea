"""Kafka's small text files: offset checkpoints, leader epochs, meta.properties.

A checkpoint is a version line, a line with the number of entries, and a line per entry
(Kafka's ``CheckpointFile``). All files are replaced atomically. A malformed file is
reported, not repaired, since logs rely on its content. An empty file has no entries.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from broker.disk.storage import (
    Storage,
    join,
    read_whole,
    replace_file,
    write_atomically,
)
from broker.protocol.topic_partition import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_VERSION: Final = 0
_NUMBER: Final = re.compile("-?[0-9]{1,19}")


class MalformedCheckpoint(Exception):
    """A checkpoint file that neither Kafka nor this broker has written."""

    def __init__(self, path: str, found: object, expected: str) -> None:
        super().__init__(path, found, expected)
        self.path = path

    def __str__(self) -> str:
        path, found, expected = self.args
        return f"{path}: found {found!r}, expected {expected}"


def read_offsets(
    storage: Storage, directory: str, name: str
) -> dict[TopicPartition, int]:
    """Return each partition's offset in a checkpoint; empty if there is no file."""
    offsets = {}
    for line in _read_entries(storage, directory, name, 3):
        topic, partition, offset = line
        index = _integer(storage, directory, name, partition)
        offsets[TopicPartition(topic, index)] = _integer(
            storage, directory, name, offset
        )
    return offsets


def write_offsets(
    storage: Storage,
    directory: str,
    name: str,
    offsets: Mapping[TopicPartition, int],
) -> None:
    """Replace an offset checkpoint."""
    _write_entries(
        storage,
        directory,
        name,
        (
            (topic, partition, offset)
            for (topic, partition), offset in sorted(offsets.items())
        ),
    )


class EpochStart(NamedTuple):
    """A leader epoch, and the offset of its first record."""

    epoch: int
    offset: int


def read_epochs(storage: Storage, directory: str) -> list[EpochStart]:
    """Return the starts of leader epochs, oldest first; empty if there is no file."""
    epochs = [
        EpochStart(
            _integer(storage, directory, LEADER_EPOCHS, epoch),
            _integer(storage, directory, LEADER_EPOCHS, offset),
        )
        for epoch, offset in _read_entries(storage, directory, LEADER_EPOCHS, 2)
    ]
    for before, after in pairwise([EpochStart(-1, -1), *epochs]):
        if not (before.epoch < after.epoch and before.offset < after.offset):
            expected = f"both above {tuple(before)}"
            path = join(directory, LEADER_EPOCHS)
            raise MalformedCheckpoint(path, tuple(after), expected)
    return epochs


def write_epochs(
    storage: Storage, directory: str, epochs: Iterable[EpochStart]
) -> None:
    """Replace the leader epochs of a log; the caller syncs its directory."""
    replace_file(storage, directory, LEADER_EPOCHS, _written(epochs))


def read_properties(storage: Storage, directory: str, name: str) -> dict[str, str]:
    """Return the pairs of a small properties file; empty if there is no file."""
    text = _text(storage, directory, name)
    if text is None:
        return {}
    pairs = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            key, found, value = line.partition("=")
            if not found:
                raise MalformedCheckpoint(join(directory, name), line, "key=value")
            pairs[key.strip()] = value.strip()
    return pairs


def write_properties(
    storage: Storage, directory: str, name: str, pairs: Mapping[str, str]
) -> None:
    """Replace a small properties file."""
    text = "".join(f"{key}={value}\n" for key, value in pairs.items())
    write_atomically(storage, directory, name, text.encode())


def _write_entries(
    storage: Storage, directory: str, name: str, entries: Iterable[Sequence[object]]
) -> None:
    write_atomically(storage, directory, name, _written(entries))


def _written(entries: Iterable[Sequence[object]]) -> bytes:
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def _read_entries(
    storage: Storage, directory: str, name: str, width: int
) -> list[list[str]]:
    text = _text(storage, directory, name)
    if text is None:
        return []
    lines = text.splitlines()
    path = join(directory, name)
    if lines and lines[0].strip() != str(_VERSION):
        raise MalformedCheckpoint(path, lines[0], f"version {_VERSION}")
    if len(lines) < 2:
        # Kafka creates the file empty, and reads an empty file as one without entries.
        return []
    if not text.endswith("\n"):
        raise MalformedCheckpoint(path, lines[-1], "a line's end behind it")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if lines[1:2] != [str(len(entries))]:
        raise MalformedCheckpoint(path, lines[1:2], f"{len(entries)} entries")
    for entry in entries:
        if len(entry) != width:
            raise MalformedCheckpoint(path, entry, f"{width} words")
    return entries


def _text(storage: Storage, directory: str, name: str) -> str | None:
    """Return the content of a file; None if there is none."""
    path = join(directory, name)
    try:
        return read_whole(storage, path).decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise MalformedCheckpoint(path, error.object, "text") from error


def _integer(storage: Storage, directory: str, name: str, text: str) -> int:
    """Return a 64-bit integer written in Kafka's digits."""
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or not -(2**63) <= number < 2**63:
        raise MalformedCheckpoint(join(directory, name), text, "a number")
    return number
