"""What the embedded coordinator must not forget: topics, configs, epochs, producer ids.

One JSON file in the first log directory, replaced atomically (temporary file, fsync,
rename, fsync of the directory), so that a kill at any moment leaves the old content or
the new. It is a file and not a directory because Kafka takes every directory beside
its logs for a partition. A value in memory changes only after the file has.

Cost: a change rewrites the file, O(topics): about a millisecond for a thousand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from broker.cluster.topics import Topic
from broker.log.checkpoints import MalformedCheckpoint
from broker.log.storage import Storage, join, read_whole, write_atomically

FILE_NAME: Final = "doorkeeper-cluster.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """All of it; ``broker_epoch`` counts the starts of this broker.

    ``deleting`` holds the topics whose logs are still being removed, with their number
    of partitions; ``broker_configs`` dynamic broker configs by broker id, as text, ""
    being the default of all brokers.
    """

    broker_epoch: int = 0
    next_producer_id: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    deleting: Mapping[str, int] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class Registry:
    """The state, in memory and on disk alike."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self.state = self._load()

    def change(self, **changes: Any) -> None:
        """Replace fields of the state, durably; raise OSError and change nothing."""
        state = replace(self.state, **changes)
        content = json.dumps(_to_json(state), separators=(",", ":")).encode()
        write_atomically(self._storage, self._directory, FILE_NAME, content)
        self.state = state

    def _load(self) -> ClusterState:
        path = join(self._directory, FILE_NAME)
        try:
            content = read_whole(self._storage, path)
        except FileNotFoundError:
            return ClusterState()
        try:
            return _from_json(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            expected = "the cluster state that this broker wrote"
            raise MalformedCheckpoint(path, repr(error), expected) from error


def _to_json(state: ClusterState) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "broker_epoch": state.broker_epoch,
        "next_producer_id": state.next_producer_id,
        "deleting": dict(state.deleting),
        "broker_configs": {k: dict(v) for k, v in state.broker_configs.items()},
        "topics": {
            topic.name: {
                "id": str(topic.topic_id),
                "leader_epochs": topic.leader_epochs,
                "configs": dict(topic.configs),
            }
            for topic in state.topics.values()
        },
    }


def _from_json(found: dict[str, Any]) -> ClusterState:
    if found["version"] != _VERSION:
        raise ValueError(f"version {found['version']!r}")
    return ClusterState(
        broker_epoch=int(found["broker_epoch"]),
        next_producer_id=int(found["next_producer_id"]),
        deleting={name: int(count) for name, count in found["deleting"].items()},
        broker_configs={k: dict(v) for k, v in found["broker_configs"].items()},
        topics={
            name: Topic(
                name=name,
                topic_id=UUID(topic["id"]),
                leader_epochs=tuple(map(int, topic["leader_epochs"])),
                configs=dict(topic["configs"]),
            )
            for name, topic in found["topics"].items()
        },
    )
