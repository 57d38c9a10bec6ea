"""The gauges of a controller about its cluster (Kafka: ``KafkaController``'s gauges).

A broker that is not controller reports 0 for all, as in Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from broker.controller.assignment import PartitionAndReplica
from broker.controller.context import ControllerContext
from broker.controller.states import PartitionState, ReplicaState
from broker.coordination.controller_events import ControllerMeters, timer_name
from broker.observation.metric import NO_LABELS, PIECE, Metric, summary
from broker.protocol.topic_partition import TopicPartition

_CONTROLLER: Final = "kafka_controller_kafkacontroller_"
_EVENTS: Final = "kafka_controller_controllereventmanager_"
_STATS: Final = "kafka_controller_controllerstats_"
_NS_PER_MS: Final = 1e6
_CHANNELS: Final = "kafka_controller_controllerchannelmanager_"
_GAUGES: Final = (
    "activecontrollercount",
    "activebrokercount",
    # Always 0 under ZooKeeper, where a fenced broker is not registered.
    "fencedbrokercount",
    "globaltopiccount",
    "globalpartitioncount",
    "offlinepartitionscount",
    "preferredreplicaimbalancecount",
    "topicstodeletecount",
    "topicsineligibletodeletecount",
    "replicastodeletecount",
    "replicasineligibletodeletecount",
)


def controller_metrics(
    context: ControllerContext | None, queued: Mapping[int, int]
) -> Iterator[Metric | None]:
    """Iterate over the metrics of a term, if there is one.

    ``queued`` is the number of requests that wait for each broker. Cost: O(all
    partitions).
    """
    counts: Counter[str] = Counter()
    if context is not None:
        counts.update(
            activecontrollercount=1,
            activebrokercount=len(context.brokers),
            globaltopiccount=len(context.topics),
            topicstodeletecount=len(context.to_delete),
            topicsineligibletodeletecount=len(context.deletion_ineligible),
        )
        # Topics may be created and deleted between two steps.
        keys = (
            TopicPartition(name, index)
            for name in tuple(context.topics)
            for index in tuple(context.topics.get(name, ()))
        )
        for number, key in enumerate(keys, 1):
            if key.topic in context.to_delete:
                _count_deletion(counts, context, key)
            else:
                _count_leader(counts, context, key)
            if not number % PIECE:
                yield None
        yield Metric(
            name=_STATS + "uncleanleaderelections",
            kind="counter",
            value=context.unclean_elections,
            suffix="_total",
        )
    for name in _GAUGES:
        yield Metric(name=_CONTROLLER + name, kind="gauge", value=counts[name])
    yield Metric(
        name=_CHANNELS + "totalqueuesize", kind="gauge", value=sum(queued.values())
    )
    for broker, waiting in queued.items():
        yield Metric(
            name=_CHANNELS + "queuesize",
            kind="gauge",
            value=waiting,
            labels={"broker_id": str(broker)},
        )


def event_metrics(meters: ControllerMeters, waiting: int) -> Iterator[Metric | None]:
    """Iterate over the metrics of the events of a broker's terms.

    ``waiting`` is the number of events in the queue.
    """
    state, queue = meters.state, _EVENTS + "eventqueue"
    yield Metric(name=_CONTROLLER + "controllerstate", kind="gauge", value=state)
    yield Metric(name=queue + "size", kind="gauge", value=waiting)
    yield from summary(queue + "timems", NO_LABELS, meters.waited_ns, _NS_PER_MS)
    for what, failures in meters.failures.items():
        yield Metric(
            name="doorkeeper_background_failures",
            kind="counter",
            value=failures,
            labels={"duty": what},
            suffix="_total",
        )
    for state, took_ns in meters.took_ns.items():
        yield None
        name = _STATS + timer_name(state).lower()
        yield from summary(name, NO_LABELS, took_ns, _NS_PER_MS)


def _count_leader(
    counts: Counter[str], context: ControllerContext, key: TopicPartition
) -> None:
    leadership = context.leadership(key)
    if leadership is None:
        return
    assignment = context.assignment(key)
    preferred = assignment.replicas[0]
    if preferred in assignment.adding:
        # A replica being added is not expected to lead before it is in sync.
        strayed = preferred in leadership.isr
    else:
        strayed = preferred != leadership.leader
    offline = context.partition_states.get(key) is PartitionState.OFFLINE
    counts["globalpartitioncount"] += 1
    counts["offlinepartitionscount"] += offline
    counts["preferredreplicaimbalancecount"] += strayed


def _count_deletion(
    counts: Counter[str], context: ControllerContext, key: TopicPartition
) -> None:
    counts["globalpartitioncount"] += context.leadership(key) is not None
    for broker in context.replicas(key):
        state = context.replica_states.get(PartitionAndReplica(key, broker))
        counts["replicastodeletecount"] += state is not ReplicaState.DELETION_SUCCESSFUL
        counts["replicasineligibletodeletecount"] += (
            state is ReplicaState.DELETION_INELIGIBLE
        )
