"""What this broker holds and leads (Kafka: ``ReplicaManager``), and how large it is.

Kafka has a gauge per partition for sizes and offsets (``kafka.log:type=Log``), and so
has this. Cost: O(partitions) per scrape.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.cluster.replica_manager import ReplicaManager
from broker.observation.metric import PIECE, Metric

_MANAGER: Final = "kafka_server_replicamanager_"
_LOG: Final = "kafka_log_log_"


def replica_metrics(replicas: ReplicaManager) -> Iterator[Metric | None]:
    """Iterate over the metrics of all partitions held here."""
    partitions = tuple(replicas.partitions.values())
    leading = lagging = 0
    for number, partition in enumerate(partitions, 1):
        if partition.is_leader:
            leading += 1
            lagging += len(partition.isr) < len(partition.replicas)
        topic, index = partition.key
        labels = {"topic": topic, "partition": str(index)}
        sizes = {
            "logstartoffset": partition.log.log_start_offset,
            "logendoffset": partition.log.log_end_offset,
            "numlogsegments": len(partition.log.segments),
            "size": partition.log.size_bytes,
        }
        for name, value in sizes.items():
            yield Metric(name=_LOG + name, kind="gauge", value=value, labels=labels)
        if not number % PIECE:
            yield None
    counts = {
        "leadercount": leading,
        "partitioncount": len(partitions),
        "underreplicatedpartitions": lagging,
    }
    for name, count in counts.items():
        yield Metric(name=_MANAGER + name, kind="gauge", value=count)
