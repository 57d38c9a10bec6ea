"""Metrics of log directories: Kafka's gauges of ``LogManager``, and sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from broker.disk.storage import Storage
from broker.log.upkeep.manager import LogManager
from broker.observation.metric import PIECE, Metric

_MANAGER: Final = "kafka_log_logmanager_"


def log_dir_metrics(logs: LogManager, storage: Storage) -> Iterator[Metric | None]:
    """Iterate over the gauges of KIP-112, and the sizes of logs and disks."""
    log_dirs = logs.log_dirs
    yield Metric(
        name=_MANAGER + "offlinelogdirectorycount",
        kind="gauge",
        value=len(log_dirs.offline),
    )
    sizes: Counter[str] = Counter()
    every = (*logs.logs.values(), *logs.futures.values())
    for number, log in enumerate(every, 1):
        sizes[log.home] += log.size_bytes
        if not number % PIECE:
            yield None
    for directory in log_dirs.all:
        yield _of_directory(
            _MANAGER + "logdirectoryoffline", directory, directory in log_dirs.offline
        )
        if directory in log_dirs.offline:
            continue
        yield _of_directory(
            "doorkeeper_log_directory_bytes", directory, sizes[directory]
        )
        try:
            volume = storage.volume(directory)
        except OSError:
            # The next access to a file decides whether the directory is offline.
            continue
        name = "doorkeeper_log_volume_{}_bytes"
        yield _of_directory(name.format("total"), directory, volume.total_bytes)
        yield _of_directory(name.format("usable"), directory, volume.usable_bytes)


def _of_directory(name: str, directory: str, value: float) -> Metric:
    labels = {"logDirectory": directory}
    return Metric(name=name, kind="gauge", value=int(value), labels=labels)
