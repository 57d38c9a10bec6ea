"""The state of a single-broker cluster as values, and its text form.

A state and a change have the same form, a JSON object. A change has only the new
values, and null for removed values. The first line of a file and the following lines
are therefore encoded alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

from broker.authorization.acl_text import (
    read_entries,
    read_pattern,
    write_entries,
    write_pattern,
)
from broker.authorization.acls import AclEntry, ResourcePattern
from broker.cluster.cluster_topics import Topic
from broker.coordination.coordinator_roles import ConfigKind, Configs

VERSION: Final = 3
# Version without topic ids in ``deleting`` and without a generation.
_FIRST_VERSION: Final = 1

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A topic whose logs are still being removed; old deletions have no topic id."""

    topic_id: UUID | None
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changed values; None means an unchanged number, or a removed value of a map."""

    broker_epoch: int | None = None
    next_producer_id: int | None = None
    topics: Mapping[str, Topic | None] = field(default_factory=dict)
    deleting: Mapping[str, Deletion | None] = field(default_factory=dict)
    configs: Mapping[ConfigKind, Mapping[str, Configs | None]] = field(
        default_factory=dict
    )
    acls: Mapping[ResourcePattern, frozenset[AclEntry] | None] = field(
        default_factory=dict
    )
    features: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ClusterState:
    """The complete state; ``broker_epoch`` is the number of starts of this broker.

    ``features`` are the finalized levels above 0. A state that was never written has
    the generation 0.
    """

    generation: int = 0
    broker_epoch: int = 0
    next_producer_id: int = 0
    topics: dict[str, Topic] = field(default_factory=dict)
    deleting: dict[str, Deletion] = field(default_factory=dict)
    configs: dict[ConfigKind, dict[str, Configs]] = field(
        default_factory=lambda: {kind: {} for kind in ConfigKind}
    )
    acls: dict[ResourcePattern, frozenset[AclEntry]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)

    def apply(self, change: Change, generation: int) -> None:
        """Apply a change in place. Cost: O(change)."""
        self.generation = generation
        if change.broker_epoch is not None:
            self.broker_epoch = change.broker_epoch
        if change.next_producer_id is not None:
            self.next_producer_id = change.next_producer_id
        _put(self.topics, change.topics)
        _put(self.deleting, change.deleting)
        for kind, configs in change.configs.items():
            _put(self.configs[kind], configs)
        _put(self.acls, change.acls)
        _put(self.features, change.features)

    def copy(self) -> ClusterState:
        """Return an independent copy of this state."""
        return replace(
            self,
            topics=dict(self.topics),
            deleting=dict(self.deleting),
            configs={kind: dict(each) for kind, each in self.configs.items()},
            acls=dict(self.acls),
            features=dict(self.features),
        )


def _put(values: dict[_K, _V], changed: Mapping[_K, _V | None]) -> None:
    for name, value in changed.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value


# ---- encoding -----------------------------------------------------------------------


def write_state(state: ClusterState) -> str:
    """Return a state as JSON on one line.

    Encoded topic by topic, so that an encoding thread lets other threads run meanwhile.
    """
    numbers = {
        "version": VERSION,
        "generation": state.generation,
        "broker_epoch": state.broker_epoch,
        "next_producer_id": state.next_producer_id,
    }
    pieces = [_dumps(numbers)[:-1], *_mappings(state), "}"]
    return "".join(pieces)


def write_change(change: Change, generation: int, after: int) -> str:
    """Return a change of the state ``after`` as JSON on one line."""
    numbers = {"generation": generation, "after": after}
    if change.broker_epoch is not None:
        numbers["broker_epoch"] = change.broker_epoch
    if change.next_producer_id is not None:
        numbers["next_producer_id"] = change.next_producer_id
    return "".join([_dumps(numbers)[:-1], *_mappings(change), "}"])


def _mappings(it: ClusterState | Change) -> Iterator[str]:
    yield from _mapping("topics", it.topics, _topic_form)
    yield from _mapping("deleting", it.deleting, _deletion_form)
    for kind, configs in it.configs.items():
        yield from _mapping(kind, configs, dict)
    acls = {write_pattern(pattern): each for pattern, each in it.acls.items()}
    yield from _mapping("acls", acls, write_entries)
    yield from _mapping("features", it.features, int)


def _mapping(
    key: str, values: Mapping[str, _V | None], form: Callable[[_V], Any]
) -> Iterator[str]:
    separator = f',"{key}":{{'
    for name, value in values.items():
        written = _dumps(None if value is None else form(value))
        yield f"{separator}{_dumps(name)}:{written}"
        separator = ","
    if values:
        yield "}"


def _topic_form(topic: Topic) -> dict[str, Any]:
    return {
        "id": str(topic.topic_id),
        "leader_epochs": topic.leader_epochs,
        "configs": dict(topic.configs),
    }


def _deletion_form(deletion: Deletion) -> dict[str, Any]:
    topic_id = deletion.topic_id
    return {
        "id": None if topic_id is None else str(topic_id),
        "partitions": deletion.partitions,
    }


def _dumps(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


# ---- decoding -----------------------------------------------------------------------


def read_state(versions: Sequence[int], found: dict[str, Any]) -> ClusterState:
    """Return the state of an object; raise ValueError, KeyError or TypeError."""
    version = found["version"]
    if version not in versions:
        raise ValueError(f"version {version!r}")
    state = ClusterState()
    # A written state of the first version has no generation, but counts as written.
    generation = 1 if version == _FIRST_VERSION else int(found["generation"])
    state.apply(_read(found), generation)
    return state


class WrittenChange(NamedTuple):
    """A change, its own generation, and the generation of the state before it."""

    change: Change
    generation: int
    after: int


def read_change(found: dict[str, Any]) -> WrittenChange:
    """Return the change of an object; raise ValueError, KeyError or TypeError."""
    return WrittenChange(_read(found), int(found["generation"]), int(found["after"]))


def _read(found: dict[str, Any]) -> Change:
    return Change(
        broker_epoch=_number(found.get("broker_epoch")),
        next_producer_id=_number(found.get("next_producer_id")),
        topics=_each(found.get("topics", {}), _topic),
        deleting=_each(found.get("deleting", {}), _deletion),
        configs={
            kind: _each(found[kind], lambda _, found: dict(found))
            for kind in ConfigKind
            if kind in found
        },
        acls={
            read_pattern(pattern): None if each is None else read_entries(each)
            for pattern, each in found.get("acls", {}).items()
        },
        features=_each(found.get("features", {}), lambda _, found: int(found)),
    )


def _number(found: Any) -> int | None:
    return None if found is None else int(found)


def _each(
    found: dict[str, Any], read: Callable[[str, Any], _V]
) -> dict[str, _V | None]:
    return {
        name: None if each is None else read(name, each) for name, each in found.items()
    }


def _topic(name: str, found: dict[str, Any]) -> Topic:
    return Topic(
        name=name,
        topic_id=UUID(found["id"]),
        leader_epochs=tuple(map(int, found["leader_epochs"])),
        configs=dict(found["configs"]),
    )


def _deletion(_: str, found: int | dict[str, Any]) -> Deletion:
    if isinstance(found, int):
        return Deletion(topic_id=None, partitions=found)
    topic_id = found["id"]
    return Deletion(
        topic_id=None if topic_id is None else UUID(topic_id),
        partitions=int(found["partitions"]),
    )
