"""Metrics of a broker's log directories: Kafka's gauges of ``LogManager``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.disk.log_dirs import LogDirs
from broker.observation.metric import Metric

_MANAGER: Final = "kafka_log_logmanager_"


def log_dir_metrics(log_dirs: LogDirs) -> Iterator[Metric]:
    """Iterate over what KIP-112 has an operator watch."""
    yield Metric(
        name=_MANAGER + "offlinelogdirectorycount",
        kind="gauge",
        value=len(log_dirs.offline),
    )
    for directory in log_dirs.all:
        yield Metric(
            name=_MANAGER + "logdirectoryoffline",
            kind="gauge",
            value=int(directory in log_dirs.offline),
            labels={"logDirectory": directory},
        )
