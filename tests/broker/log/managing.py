"""Logs of a broker on an in-memory disk, for tests of its periodic rounds."""

from broker.disk.log_dirs import LogDirs
from broker.disk.memory import Faults
from broker.log.segments.log_config import LogConfig
from broker.log.upkeep.manager import LogManager
from tests.broker.log.witness import NOW_MS, batch, disk, make_durably

A, B = ("a", 0), ("b", 0)
HOME = "/data/one"
COMPACT = frozenset({"compact"})


class Calls(Faults):
    """Records every call that changes or syncs a file; none fails by default."""

    def __init__(self, **options):
        super().__init__(**options)
        self.names = []

    def count(self, call):
        self.names.append(call)
        super().count(call)


def open_logs(config, *, storage=None, now_ms=lambda: NOW_MS, keys=(A, B)):
    """Return a manager whose logs all have the same settings."""
    storage = storage or disk()
    make_durably(storage, HOME)
    made = LogManager(
        LogDirs([HOME]),
        storage,
        config_of=lambda topic: LogConfig(**config),
        now_ms=now_ms,
        report=lambda loss: None,
    )
    made.open()
    for key in keys:
        made.open_log(key, None)
    return made


def fill(log, count, *, keys=3, age_ms=0):
    for number in range(count):
        sent = batch(
            [b"value %d" % number],
            keys=[b"k%d" % (number % keys)],
            timestamps=[NOW_MS - age_ms],
        )
        log.append(sent, 0, NOW_MS)


def everything_below(manager):
    """Return a function from a log's key to its log end offset, to compact up to."""
    return lambda key: manager.logs[key].log_end_offset


class Failures(list):
    """Failures that a round reported, as (path, error)."""

    def __call__(self, path, error):
        self.append((path, error))
