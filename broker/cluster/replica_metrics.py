"""Metrics of the replicas held and led here (Kafka: ``ReplicaManager``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.cluster.partition import Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.cluster.replication_quota import Quotas
from broker.observation.metric import PIECE, Metric

_MANAGER: Final = "kafka_server_replicamanager_"
_LOG: Final = "kafka_log_log_"
_PARTITION: Final = "kafka_cluster_partition_"
_COUNTS: Final = (
    "partitioncount",
    "leadercount",
    "underreplicatedpartitions",
    "underminisrpartitioncount",
    "atminisrpartitioncount",
    "reassigningpartitions",
    "offlinereplicacount",
)


def replica_metrics(replicas: ReplicaManager) -> Iterator[Metric | None]:
    """Iterate over the metrics of all partitions held here."""
    counts: Counter[str] = Counter()
    for number, partition in enumerate(tuple(replicas.partitions.values()), 1):
        states = _states(partition)
        counts.update(
            partitioncount=1,
            leadercount=int(partition.is_leader),
            underreplicatedpartitions=states["underreplicated"],
            underminisrpartitioncount=states["underminisr"],
            atminisrpartitioncount=states["atminisr"],
            reassigningpartitions=int(partition.is_leader and partition.is_reassigning),
            offlinereplicacount=int(partition.is_offline),
        )
        topic, index = partition.key
        labels = {"topic": topic, "partition": str(index)}
        for names, values in ((_LOG, _sizes(partition)), (_PARTITION, states)):
            for name, value in values.items():
                yield Metric(
                    name=names + name, kind="gauge", value=value, labels=labels
                )
        if not number % PIECE:
            yield None
    counts["offlinereplicacount"] += len(replicas.offline)
    for name in _COUNTS:
        yield Metric(name=_MANAGER + name, kind="gauge", value=counts[name])


def quota_metrics(quotas: Quotas) -> Iterator[Metric]:
    """Iterate over the bytes moved to and from followers, and their throttled part."""
    for name, direction, quota in (
        ("leaderreplication", "out", quotas.leader),
        ("followerreplication", "in", quotas.follower),
    ):
        yield Metric(
            name=f"kafka_server_{name}_byte_rate", kind="gauge", value=quota.per_s()
        )
        yield Metric(
            name=f"kafka_server_brokertopicmetrics_replicationbytes{direction}",
            kind="counter",
            value=quota.moved_bytes,
            suffix="_total",
        )


def _sizes(partition: Partition) -> dict[str, int]:
    log = partition.log
    return {
        "logstartoffset": log.log_start_offset,
        "logendoffset": log.log_end_offset,
        "numlogsegments": len(log.segments),
        "size": log.size_bytes,
    }


def _states(partition: Partition) -> dict[str, int]:
    """Return the leader's values of a partition's replicas; 0 for a follower."""
    isr, replicas, lag = len(partition.isr), len(partition.replicas), 0
    if not partition.is_leader:
        isr = replicas = least = 0
    else:
        least = partition.effective_min_isr
        lag = partition.log.log_end_offset - partition.last_stable_offset
    return {
        "insyncreplicascount": isr,
        "replicascount": replicas,
        "laststableoffsetlag": lag,
        "underreplicated": int(isr < replicas),
        "underminisr": int(partition.is_under_min_isr),
        "atminisr": int(partition.is_leader and isr == least),
    }
