"""``partition.metadata``: the id of the topic that a log belongs to (KIP-516).

The file is written when a log is created and synced with the log's first flush, as in
Kafka; an immediate sync would be two thirds of the cost of a new partition. A loss of
power may therefore truncate it. The log then belongs to the topic of its name, like a
log older than topic ids, and the id is written again.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from broker.disk.checkpoints import MalformedCheckpoint
from broker.disk.identity import kafka_uuid, parse_kafka_uuid
from broker.disk.storage import Storage, join, read_whole

FILE_NAME: Final = "partition.metadata"
_HEAD: Final = "version: 0\ntopic_id: "
_ID_SIZE: Final = 22


def write_topic_id(storage: Storage, directory: str, topic_id: UUID) -> str:
    """Write a log's topic id without a sync; return the file's path."""
    path = join(directory, FILE_NAME)
    content = f"{_HEAD}{kafka_uuid(topic_id)}\n".encode()
    file = storage.open(path, create=True)
    file.truncate(0)
    file.write(0, (content,), len(content))
    return path


def read_topic_id(storage: Storage, directory: str) -> UUID | None:
    """Return a log's topic id; None if it is not known.

    Raises `MalformedCheckpoint` for damage that no loss of power explains.
    """
    path = join(directory, FILE_NAME)
    try:
        content = read_whole(storage, path)
    except FileNotFoundError:
        return None
    text = content.rstrip(b"\0").decode(errors="replace")
    if _is_torn(text):
        return None
    pairs = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return parse_kafka_uuid(pairs["topic_id"].strip())
    except (KeyError, ValueError):
        raise MalformedCheckpoint(path, text, "a topic_id") from None


def _is_torn(text: str) -> bool:
    """Return whether this is a truncated file of `write_topic_id`."""
    return _HEAD.startswith(text) or (
        text.startswith(_HEAD) and len(text) < len(_HEAD) + _ID_SIZE
    )
