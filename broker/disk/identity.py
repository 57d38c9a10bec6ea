"""The owner of a log directory: ``meta.properties``, as Kafka writes it.

A broker refuses directories of another broker or another cluster, whose logs it would
serve as its own. Members of a cluster under ZooKeeper write version 0, others version 1
(KRaft); both are read.
"""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import UUID

from broker.disk.checkpoints import (
    META_PROPERTIES,
    MalformedCheckpoint,
    read_properties,
    write_properties,
)
from broker.disk.log_dirs import LogDirs
from broker.disk.storage import Storage, join
from broker.protocol.errors import ConfigError

_NUMBER: Final = re.compile("[0-9]{1,10}")
# Keys that each version of meta.properties must have.
_NEEDED: Final = {"0": (), "1": ("cluster.id", "node.id")}
# The longest string of Kafka's protocol; responses to Metadata hold the cluster's id.
_ID_BYTES_MAX: Final = 32_767


def draw_uuid(rng: random.Random) -> UUID:
    """Return a random id, of a topic, a directory or a cluster."""
    return UUID(int=rng.getrandbits(128), version=4)


def kafka_uuid(uuid: UUID) -> str:
    """Return a UUID as Kafka prints it: base64url without padding.

    >>> kafka_uuid(UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def parse_kafka_uuid(text: str) -> UUID:
    """Return the UUID of Kafka's text; raise ``ValueError``.

    >>> parse_kafka_uuid('AAAAAAAAAAAAAAAAAAAAAQ').int
    1
    """
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def claim(
    storage: Storage,
    log_dirs: LogDirs,
    node_id: int,
    new_id: Callable[[], UUID],
    *,
    of_cluster: str | None = None,
) -> str:
    """Mark new directories as this broker's, and check the others; return cluster.id.

    ``of_cluster`` is the id of the cluster that the broker joins. Without one, an id is
    generated if no directory has one. The directories exist and are locked
    (`DirectoryLocks`). A directory that cannot be read or written is taken offline.
    Raises `ConfigError`.
    """
    found = _read(storage, log_dirs)
    named = {
        directory: pairs["cluster.id"]
        for directory, pairs in found.items()
        if "cluster.id" in pairs
    }
    cluster_ids = set(named.values())
    if len(cluster_ids) > 1:
        raise ConfigError("log.dirs", named, "directories of one cluster")
    if of_cluster is not None and cluster_ids - {of_cluster}:
        expected = f"directories of {of_cluster}, the /cluster/id in ZooKeeper"
        raise ConfigError("log.dirs", cluster_ids.pop(), expected)
    cluster_id = next(iter(cluster_ids), of_cluster) or kafka_uuid(new_id())
    size = len(cluster_id.encode())
    if size > _ID_BYTES_MAX:
        place = "log.dirs" if named else "zookeeper.connect"
        expected = f"at most {_ID_BYTES_MAX} bytes, as messages hold"
        raise ConfigError(place, f"a cluster id of {size} bytes", expected)
    for directory, pairs in found.items():
        owner = pairs.get("node.id", pairs.get("broker.id", str(node_id)))
        if owner != str(node_id):
            path = join(directory, META_PROPERTIES)
            raise ConfigError("node.id", node_id, f"{owner}, as in {path}")
        if "cluster.id" in pairs:
            continue
        # Apache Kafka under ZooKeeper reads version 0 only. Its oldest releases wrote a
        # file without a cluster.id.
        version = "1" if of_cluster is None else "0"
        ours = {"version": version, "cluster.id": cluster_id}
        if of_cluster is None:
            ours |= {"node.id": str(node_id), "directory.id": kafka_uuid(new_id())}
        else:
            ours["broker.id"] = str(node_id)
        try:
            write_properties(storage, directory, META_PROPERTIES, ours)
        except OSError as error:
            log_dirs.take_offline(directory, error)
    return cluster_id


def _read(storage: Storage, log_dirs: LogDirs) -> dict[str, dict[str, str]]:
    """Return the pairs of each directory that can be read; others go offline."""
    found = {}
    for directory in log_dirs.online:
        try:
            pairs = read_properties(storage, directory, META_PROPERTIES)
        except OSError as error:
            log_dirs.take_offline(directory, error)
        else:
            _check(join(directory, META_PROPERTIES), pairs)
            found[directory] = pairs
    return found


def _check(path: str, pairs: Mapping[str, str]) -> None:
    """Check pairs as Kafka's ``MetaProperties``; ``pairs`` is empty without a file."""
    version = pairs.get("version", "0")
    if version not in _NEEDED:
        expected = f"one of {', '.join(_NEEDED)} in {path}"
        raise ConfigError("log.dirs", f"version={version}", expected)
    for key in _NEEDED[version]:
        if not pairs.get(key):
            raise ConfigError("log.dirs", f"no {key}", f"{key} in {path}")


def known_broker_id(storage: Storage, directories: Iterable[str]) -> int | None:
    """Return the broker id in the first directory that has one.

    Raises `ConfigError` if the id is no number, or a file is damaged. Directories that
    cannot be read are skipped.
    """
    for directory in directories:
        try:
            pairs = read_properties(storage, directory, META_PROPERTIES)
        except OSError:
            # `claim` reports the error.
            continue
        except MalformedCheckpoint as damage:
            expected = "files as a broker leaves them"
            raise ConfigError("log.dirs", str(damage), expected) from damage
        owner = pairs.get("node.id", pairs.get("broker.id"))
        if owner is not None:
            if not _NUMBER.fullmatch(owner):
                path = join(directory, META_PROPERTIES)
                raise ConfigError("broker.id", owner, f"a number in {path}")
            return int(owner)
    return None
