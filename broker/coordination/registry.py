"""What the embedded coordinator must not forget: topics, configs, epochs, producer ids.

One JSON file, the same in every log directory, so that the loss of any one of them
loses none of it. A change counts the generation up and replaces the copies one after
the other, each atomically (temporary file, fsync, rename, fsync of the directory): a
kill at any moment leaves old or new ones, and the newest is the one that holds. Two
copies that differ under one generation were written by two brokers, each without the
other's directory; which of them is right only an operator can say.

It is a file and not a directory because Kafka takes every directory beside its logs for
a partition. A value in memory changes only after a file has.

Cost: a change rewrites the file in each directory, O(topics).
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from logging import getLogger
from typing import Any, Final
from uuid import UUID

from broker.cluster.topics import Topic
from broker.disk.checkpoints import MalformedCheckpoint
from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage, join, read_whole, write_atomically
from broker.observation.logs import fields
from broker.protocol.errors import ConfigError

logger = getLogger(__name__)

FILE_NAME: Final = "doorkeeper-cluster.json"
_VERSION: Final = 2
# Its ``deleting`` knows no ids, and it has no generation.
_FIRST_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A topic whose logs are still being removed; the id is not known of old ones."""

    topic_id: UUID | None
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """All of it; ``broker_epoch`` counts the starts of this broker.

    ``broker_configs`` holds dynamic broker configs by broker id, as text, "" being the
    default of all brokers. A state that was never written has the generation 0.
    """

    generation: int = 0
    broker_epoch: int = 0
    next_producer_id: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)
    deleting: Mapping[str, Deletion] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class Registry:
    """The state, in memory and in every directory alike."""

    def __init__(self, storage: Storage, log_dirs: LogDirs) -> None:
        self._storage = storage
        self._log_dirs = log_dirs
        # Counts attempts, so that no two states are ever written under one number.
        self._generation = 0
        self.state = ClusterState()

    def load(self) -> None:
        """Take the newest copy; raise `MalformedCheckpoint` or `ConfigError`.

        The latter means that two copies contradict each other. A directory that cannot
        be read is offline from then on.
        """
        copies = {}
        for directory in self._log_dirs.online:
            try:
                state = self._read(directory)
            except OSError as error:
                self._log_dirs.take_offline(directory, error)
                continue
            if state is not None:
                copies[directory] = state
        if not copies:
            return
        newest = max(copies, key=lambda directory: copies[directory].generation)
        self.state = copies[newest]
        self._generation = self.state.generation
        for directory, state in copies.items():
            if state.generation < self._generation:
                logger.warning(
                    "a log directory held an older registry of topics",
                    extra=fields(
                        directory=directory,
                        generation=state.generation,
                        newest=self._generation,
                        newest_in=newest,
                    ),
                )
            elif state != self.state:
                found = ", ".join(join(each, FILE_NAME) for each in (newest, directory))
                expected = "copies of one registry, or one of them removed"
                raise ConfigError("log.dirs", found, expected)

    def change(self, **changes: Any) -> None:
        """Replace fields of the state, durably; raise OSError and change nothing.

        One copy makes it durable. A directory that does not take its copy has an older
        one until the next change, or goes offline.
        """
        self._generation += 1
        state = replace(self.state, generation=self._generation, **changes)
        content = json.dumps(_to_json(state), separators=(",", ":")).encode()
        refused: OSError | None = None
        written = 0
        for directory in self._log_dirs.online:
            try:
                write_atomically(self._storage, directory, FILE_NAME, content)
                written += 1
            except OSError as error:
                refused = error
                self._log_dirs.failed(directory, error)
        if not written:
            raise refused or OSError(errno.EIO, "no log directory is online")
        self.state = state

    def _read(self, directory: str) -> ClusterState | None:
        path = join(directory, FILE_NAME)
        try:
            content = read_whole(self._storage, path)
        except FileNotFoundError:
            return None
        try:
            return _from_json(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            expected = "the cluster state that this broker wrote"
            raise MalformedCheckpoint(path, repr(error), expected) from error


def _to_json(state: ClusterState) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "generation": state.generation,
        "broker_epoch": state.broker_epoch,
        "next_producer_id": state.next_producer_id,
        "deleting": {
            name: {
                "id": None if each.topic_id is None else str(each.topic_id),
                "partitions": each.partitions,
            }
            for name, each in state.deleting.items()
        },
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
    version = found["version"]
    if version not in (_FIRST_VERSION, _VERSION):
        raise ValueError(f"version {version!r}")
    return ClusterState(
        # One that was written counts, whatever its version.
        generation=1 if version == _FIRST_VERSION else int(found["generation"]),
        broker_epoch=int(found["broker_epoch"]),
        next_producer_id=int(found["next_producer_id"]),
        deleting={name: _deletion(each) for name, each in found["deleting"].items()},
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


def _deletion(found: int | dict[str, Any]) -> Deletion:
    if isinstance(found, int):
        return Deletion(topic_id=None, partitions=found)
    topic_id = found["id"]
    return Deletion(
        topic_id=None if topic_id is None else UUID(topic_id),
        partitions=int(found["partitions"]),
    )
