"""Reconciliation of the logs on disk with the registry.

A log stores its topic's id (``partition.metadata``); the registry stores topics by name
and id. If both ids agree, or the log has none because it is older than topic ids, the
log belongs to the topic. A log whose name is not in the registry is adopted: the
registry was lost, Apache Kafka wrote the log, or another controller had it created. A
log that contradicts the registry is a stray: its topic was deleted and created again
while its directory was offline. No log is ever deleted because it is unknown.

Pure function: the logs found as input, the state to store as result.

Kafka in ZooKeeper mode also opens all logs found. Under KRaft it renames logs that are
unknown to the controller to ``-stray``, which is safe because the controllers have a
quorum.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from broker.cluster.cluster_topics import INTERNAL_TOPICS, Topic, check_name
from broker.coordination.cluster_state import ClusterState, Deletion
from broker.coordination.coordinator_roles import FoundLog
from broker.protocol.errors import KafkaError
from broker.protocol.topic_partition import TopicPartition

# The configs of an unknown topic are lost; all its data is kept until they are altered.
KEPT: Final[Mapping[str, str]] = MappingProxyType(
    {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}
)
_COMPACTED: Final[Mapping[str, str]] = MappingProxyType({"cleanup.policy": "compact"})
# A broker allocates ids from 0 and never reaches this one; a client may send any id.
PRODUCER_ID_GIVEN_BELOW: Final = 2**62
# Margin for ids that were allocated but had not written when the registry was lost.
PRODUCER_IDS_UNSEEN: Final = 1_000_000
# Largest gap in the partition numbers below a log: the partitions of one request.
MISSING_MAX: Final = 10_000


class Reconciled(NamedTuple):
    """The state to store, the topics that are new in it, and strays with reasons."""

    state: ClusterState
    adopted: Mapping[str, Topic]
    strays: Mapping[TopicPartition, str]


def reconcile(
    state: ClusterState,
    found: Mapping[TopicPartition, FoundLog],
    new_id: Callable[[], UUID],
) -> Reconciled:
    """Assign every log found to a topic or to the strays; return the state to store.

    ``new_id`` draws ids for topics without an id. Cost: O(logs).
    """
    work = _Reconciliation(new_id, dict(state.topics), dict(state.deleting))
    unknown: dict[str, dict[int, FoundLog]] = defaultdict(dict)
    logs_of = Counter(name for name, _ in found)
    for (name, index), log in sorted(found.items()):
        known = len(state.topics[name].leader_epochs) if name in state.topics else 0
        if index >= known + logs_of[name] + MISSING_MAX:
            # An implausible partition number: a directory can have any name.
            stray = TopicPartition(name, index)
            work.strays[stray] = f"{MISSING_MAX} partitions before it are missing"
        elif name in state.topics:
            work.known(name, index, log)
        elif name in state.deleting:
            work.doomed(name, index, log)
        else:
            unknown[name][index] = log
    for name, logs in unknown.items():
        work.unknown(name, logs)
    next_state = replace(
        state,
        topics=work.topics,
        deleting=work.deleting,
        next_producer_id=_next_producer_id(state, found),
    )
    return Reconciled(next_state, work.adopted, work.strays)


@dataclass(slots=True)
class _Reconciliation:
    """The decisions so far, by topic and log."""

    new_id: Callable[[], UUID]
    topics: dict[str, Topic]
    deleting: dict[str, Deletion]
    adopted: dict[str, Topic] = field(default_factory=dict)
    strays: dict[TopicPartition, str] = field(default_factory=dict)

    def known(self, name: str, index: int, log: FoundLog) -> None:
        topic = self.topics[name]
        if log.topic_id not in (None, topic.topic_id):
            self.strays[TopicPartition(name, index)] = (
                f"the topic's id is {topic.topic_id}"
            )
        elif index not in topic.partitions:
            # The partition was added while the newest registry's directory was offline.
            missing = index + 1 - len(topic.leader_epochs)
            epochs = (*topic.leader_epochs, *(0 for _ in range(missing)))
            self.topics[name] = replace(topic, leader_epochs=epochs)

    def doomed(self, name: str, index: int, log: FoundLog) -> None:
        deletion = self.deleting[name]
        if None not in (log.topic_id, deletion.topic_id) and (
            log.topic_id != deletion.topic_id
        ):
            self.strays[TopicPartition(name, index)] = (
                f"topic {deletion.topic_id} is being deleted"
            )
            return
        partitions = max(deletion.partitions, index + 1)
        self.deleting[name] = replace(deletion, partitions=partitions)

    def unknown(self, name: str, logs: Mapping[int, FoundLog]) -> None:
        try:
            check_name(name)
        except KafkaError as illegal:
            strays = (TopicPartition(name, index) for index in logs)
            self.strays |= dict.fromkeys(strays, str(illegal))
            return
        ids = Counter(log.topic_id for log in logs.values() if log.topic_id)
        topic_id = ids.most_common(1)[0][0] if ids else self.new_id()
        ours = []
        for index, log in logs.items():
            if log.topic_id not in (None, topic_id):
                self.strays[TopicPartition(name, index)] = (
                    f"most of the topic has the id {topic_id}"
                )
            elif log.topic_id is None and log.is_empty:
                self.strays[TopicPartition(name, index)] = (
                    "it is empty, and no topic knows of it"
                )
            else:
                ours.append(index)
        if ours:
            configs = _COMPACTED if name in INTERNAL_TOPICS else KEPT
            self.topics[name] = self.adopted[name] = Topic(
                name=name,
                topic_id=topic_id,
                leader_epochs=(0,) * (max(ours) + 1),
                configs=configs,
            )


def _next_producer_id(
    state: ClusterState, found: Mapping[TopicPartition, FoundLog]
) -> int:
    """Return an id above all allocated ids, as far as they can be known."""
    seen = max((log.latest_producer_id for log in found.values()), default=-1)
    unseen = 0 if state.generation or not found else PRODUCER_IDS_UNSEEN
    return max(state.next_producer_id, seen + 1 + unseen)
